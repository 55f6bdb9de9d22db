"""`python -m studies.settings`: which settings FedFOR's Table 2 is most likely of."""

from studies.settings.search_study import SearchStudy
from studies.study_command import run

if __name__ == "__main__":
    run(SearchStudy())
