"""`python -m studies.readings`: how MAN's Table 2 was most likely measured."""

from studies.readings.readings_study import ReadingsStudy
from studies.study_command import run

if __name__ == "__main__":
    run(ReadingsStudy())
