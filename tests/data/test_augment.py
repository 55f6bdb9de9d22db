import pytest
import torch
from torch import Tensor

from fedscope.data.augment import Pipeline

MEAN, STD = (0.5, 0.25, 0.1), (0.5, 0.25, 0.2)
ALL = torch.arange(64)


def images() -> Tensor:
    return torch.randint(0, 256, (64, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def test_normalisation_is_per_channel_on_the_unit_scale() -> None:
    out = Pipeline(MEAN, STD).test(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8))
    assert out.flatten().tolist() == pytest.approx([(1 - m) / s for m, s in zip(MEAN, STD, strict=True)])


def test_nothing_to_draw_is_the_test_pipeline() -> None:
    pipeline = Pipeline(MEAN, STD)
    assert torch.equal(
        pipeline.train(images(), ALL, pipeline.draw(64, torch.Generator())), pipeline.test(images())
    )


@pytest.mark.parametrize("padding_value", ["black", "mean"])
def test_each_image_is_a_flipped_crop_of_its_padded_self(padding_value: str) -> None:
    pipeline = Pipeline(MEAN, STD, flip=0.5, crop=1.0, padding=2, padding_value=padding_value)  # type: ignore[arg-type]
    out = pipeline.train(images(), ALL, pipeline.draw(64, torch.Generator().manual_seed(1)))
    plain = pipeline.test(images())
    border = pipeline.test(torch.zeros(1, 3, 1, 1, dtype=torch.uint8))[0] if padding_value == "black" else 0.0
    canvas = torch.zeros(64, 3, 12, 12) + border
    canvas[:, :, 2:10, 2:10] = plain
    seen = set()
    for image, padded in zip(out, canvas, strict=True):
        matches = [
            (dy, dx, flip)
            for dy in range(5)
            for dx in range(5)
            for flip in (False, True)
            if torch.equal(
                padded[:, dy : dy + 8, dx : dx + 8].flip(2) if flip else padded[:, dy : dy + 8, dx : dx + 8],
                image,
            )
        ]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) > 25  # of 50 equally likely


def test_probabilities_are_what_they_say() -> None:
    pipeline = Pipeline((0.0,), (1.0,), flip=0.3, crop=0.5, padding=1)
    stripe = torch.zeros(4000, 1, 4, 4, dtype=torch.uint8)
    stripe[:, :, 1, 0] = 255
    out = pipeline.train(stripe, torch.arange(4000), pipeline.draw(4000, torch.Generator().manual_seed(0)))
    untouched = (out == pipeline.test(stripe)).flatten(1).all(1).double().mean().item()
    expected = 0.7 * (0.5 + 0.5 / 9)  # not flipped, and not cropped or cropped at the centre
    assert untouched == pytest.approx(expected, abs=4 * (expected * (1 - expected) / 4000) ** 0.5)


def test_a_pipeline_may_scale_images_down() -> None:
    images = torch.full((2, 3, 64, 64), 51, dtype=torch.uint8)
    images[:, :, :, 32:] = 204
    small = Pipeline((0.0,) * 3, (1.0,) * 3, side=16)
    done = small.test(images)
    assert done.shape == (2, 3, 16, 16)
    torch.testing.assert_close(done[..., :6], torch.full((2, 3, 16, 6), 0.2))
    torch.testing.assert_close(done[..., 10:], torch.full((2, 3, 16, 6), 0.8))
