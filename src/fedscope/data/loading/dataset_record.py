"""The description of a data set: the one record that loading, checking and listing read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedscope.data.augment import Pipeline
from fedscope.data.loading.datasets import Dataset
from fedscope.data.reading.shards import HubSource
from fedscope.data.reading.split_rules import Chosen, Tables, as_published


@dataclass(frozen=True)
class DatasetRecord:
    """A data set of the catalogue."""

    name: str
    title: str
    classes: int
    channels: int
    side: int  # of the images that the network gets
    expected: Mapping[str, int]  # images of each split, as published; a split may be left out
    pipelines: Mapping[str, Pipeline]  # the first is the default
    model: str  # the default network
    source: str  # where to get it
    licence: str
    layout: str = ""  # of its local files, in words
    stored_as: str = ""  # the folder of its files, where another data set has the same
    hub: HubSource | None = None
    domain_hubs: Mapping[str, HubSource] = field(default_factory=dict)
    domains: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of the classes, where they are a choice or a source may not name them
    rule: Callable[[Tables], Chosen] = as_published
    decode: Literal["exact", "squared", "files"] = "exact"  # once, as is or scaled; or when fetched
    built_in: Callable[[], Dataset] | None = None

    @property
    def folder(self) -> str:
        return self.stored_as or self.name
