# SPDX-License-Identifier: Apache-2.0
# data.py - with_ids: a data set whose items have ids; prefetching: a loader that says which ids
# come next.
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Iterator, Optional

import torch

from deltawire.errors import refuse
from deltawire.torch.pipeline.ids import NAME


class WithIds(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A data set whose items have ids: their indices. See with_ids."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: int) -> Any:
        item = self._dataset[i]
        if isinstance(item, Mapping):
            return {NAME: i, **item}
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
        waiting: "list[Any]" = []
        for batch in self._loader:
            for stage in self._stages:
                stage.prefetch(self._ids(batch))
            waiting.append(batch)
            if len(waiting) > 1:
                yield waiting.pop(0)
        yield from waiting


def prefetching(
    loader: Any, *stages: Any, ids: Optional[Callable[[Any], Any]] = None
) -> Prefetching:
    """Returns a loader with the same batches, which takes each of them from `loader` a step ahead
    and calls stage.prefetch with its ids, so that a step need not wait for a file of state=. Take
    it on every rank, with the stages of that rank.

    loader: a DataLoader, or anything else that can be iterated over.
    ids: returns the ids of a batch. None: they are where with_ids has put them.

    Errors, while batches are taken: ARGUMENT (a batch has no ids), those of loader and ids."""
    return Prefetching(loader, stages, _ids_of if ids is None else ids)


def _ids_of(batch: Any) -> Any:
    if isinstance(batch, Mapping) and NAME in batch:
        return batch[NAME]
    if isinstance(batch, (tuple, list)) and batch:
        return batch[0]
    refuse(f"a batch has no {NAME}: give its data set to with_ids, or give prefetching ids=")
