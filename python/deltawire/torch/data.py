# SPDX-License-Identifier: Apache-2.0
# data.py - with_ids: a data set whose items have ids; prefetching: a loader that says which ids
# come next.
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Iterator, Optional

import torch

from deltawire.errors import refuse
from deltawire.torch.pipeline.ids import NAME, listed


class WithIds(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A data set whose items have ids: their indices. See with_ids."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: int) -> Any:
        return _with_id(i, self._dataset[i])

    def __getitems__(self, indices: "list[int]") -> "list[Any]":
        """What a DataLoader calls for a batch, which some data sets read at once."""
        read = getattr(self._dataset, "__getitems__", None)
        items = read(indices) if read else [self._dataset[i] for i in indices]
        return [_with_id(i, item) for i, item in zip(indices, items)]


def _with_id(i: int, item: Any) -> Any:
    if isinstance(i, slice):
        refuse("a data set of with_ids has no slices: take items by their indices")
    if isinstance(item, Mapping):
        return {**item, NAME: i}
    return (i, *item) if isinstance(item, (tuple, list)) else (i, item)


def with_ids(dataset: Any) -> WithIds:
    """Returns a data set with the items of another one and their indices, which are the ids that
    compress_stage needs: the same for a sample in every epoch, however a DataLoader shuffles.

    dataset: has a length and items, as those of torch.utils.data and of the package datasets.

    An item that is a mapping gets the index as "sample_ids", any other one as its first part.
    Errors: ARGUMENT (the data set has no length, or is an IterableDataset, so its items have no
    indices)."""
    has_both = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not has_both or isinstance(dataset, torch.utils.data.IterableDataset):
        refuse(
            f"a {type(dataset).__name__} has no indices: number its samples yourself, the same way "
            "in every epoch, and give these numbers as sample_ids"
        )
    return WithIds(dataset)


class Prefetching:
    """A loader whose batches are announced to stages before their step. See prefetching."""

    def __init__(self, loader: Any, stages: "tuple[Any, ...]", ids: Callable[[Any], Any]) -> None:
        self._loader, self._stages, self._ids = loader, stages, ids

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        waiting: "list[Any]" = []
        while True:
            try:
                batch = next(batches)
                for stage in self._stages:
                    stage.prefetch(self._ids(batch))
            except Exception as error:  # after the batch before, as without prefetching
                yield from waiting
                if isinstance(error, StopIteration):
                    return
                raise
            yield from waiting
            waiting = [batch]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)


def prefetching(
    loader: Any, *stages: Any, ids: Optional[Callable[[Any], Any]] = None
) -> Prefetching:
    """Returns a loader with the same batches, which takes each of them from `loader` a step ahead
    and calls stage.prefetch with its ids, so that a step need not wait for a file of state=. Take
    it on every rank, with the stages of that rank.

    loader: a DataLoader, or anything else that can be iterated over; its attributes are those of
        what is returned, too.
    ids: returns the ids of a batch. None: they are where with_ids has put them.

    Errors: ARGUMENT (no stages, or an ids that cannot be called). While batches are taken: ARGUMENT
    (a batch has no ids), those of loader and ids."""
    if not stages or not all(hasattr(stage, "prefetch") for stage in stages):
        refuse("prefetching needs stages of compress_stage: prefetching(loader, stage, ...)")
    if ids is not None and not callable(ids):
        refuse(f"ids must be a function of a batch, not {ids!r}")
    return Prefetching(loader, stages, _ids_of if ids is None else ids)


def _ids_of(batch: Any) -> "list[int]":
    found = None
    if isinstance(batch, Mapping):
        found = batch.get(NAME)
    elif isinstance(batch, (tuple, list)) and batch:
        found = batch[0]
    if found is None:
        refuse(f"a batch has no {NAME}: give its data set to with_ids, or give prefetching ids=")
    return listed(found)
