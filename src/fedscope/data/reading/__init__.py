"""From files to tables of images and labels."""
