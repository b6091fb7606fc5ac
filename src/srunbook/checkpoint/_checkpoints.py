"""Save and restore checkpoints in a directory, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from srunbook.checkpoint import _files, _manifest
from srunbook.checkpoint._arrays import FRAMEWORKS, Index
from srunbook.checkpoint._errors import CheckpointError, DamagedError
from srunbook.checkpoint._restoring import Restored, check_expected, manifest_of, read_tensors
from srunbook.checkpoint._saving import LOG, Save

STEP = "step-{:010d}"
CHOICE = ".restore.json"


class Checkpoints:
    """The checkpoints of one training in one directory.

    With several processes, all of them call `save`, `wait` and `restore` at the same points of the program.

    Args:
        directory: The directory; it is made by the first save, and all processes see it.
        keep: How many checkpoints to keep. Older ones are removed once a new one is complete.
        process_id: Number of this process, from 0.
        num_processes: Number of processes.
        barrier: A function without arguments that returns when all processes have called it, such as
            `torch.distributed.barrier`. Only the thread that calls `save`, `wait` or `restore` calls it. It has to
            fail when a process has died, so that the others do not wait for ever. Required for several processes.

    Raises:
        ValueError: `keep` is less than 1, `process_id` lies outside the world, or `barrier` is missing.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int = 3,
        *,
        process_id: int = 0,
        num_processes: int = 1,
        barrier: Callable[[], object] | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint is kept, for example keep=3")
        if not 0 <= process_id < num_processes:
            raise ValueError(f"process_id={process_id} of num_processes={num_processes}: needs 0 <= id < number")
        if num_processes > 1 and barrier is None:
            raise ValueError(f"num_processes={num_processes} needs barrier=, for example torch.distributed.barrier")
        self.directory = Path(directory).absolute()
        self.keep = keep
        self.process_id = process_id
        self.num_processes = num_processes
        self._barrier = (barrier if num_processes > 1 else None) or (lambda: None)
        self._pending: Save | None = None
        self._current: int | None = None
        self._damaged: set[int] = set()

    def steps(self) -> list[int]:
        """List the steps that have a checkpoint, ascending. `restore` checks their contents.

        Raises:
            CheckpointError: The directory cannot be read.
        """
        try:
            names = os.listdir(self.directory)  # noqa: PTH208 - names are enough
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"{self.directory} cannot be read: {error.strerror}") from error
        found = (re.fullmatch(r"step-(\d{10,})", name) for name in names)
        return sorted(int(match[1]) for match in found if match)

    def save(
        self,
        step: int,
        tensors: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        background: bool = False,
    ) -> None:
        """Save a step, and then remove old ones.

        A step that this object has just saved or restored is not saved again.

        Args:
            step: The step, from 0; newer than all steps in the directory.
            tensors: Torch tensors, NumPy arrays or JAX arrays by name, of any shape. A plain array is the same on all
                processes, and process 0 writes it. Each process writes each `Shard` of its own, and its own part of a
                JAX array that is spread over processes.
            metadata: What JSON can hold: numbers, text, lists, mappings with text as keys. Those of process 0
                are kept.
            background: Whether to return as soon as the tensors are copied, and to write in a thread. Errors are
                raised by the next `save`, `restore` or `wait`. With several processes, call `wait` before the program
                ends.

        Raises:
            CheckpointError: It was not saved. Earlier checkpoints are kept.
            TypeError: A tensor or the metadata cannot be stored.
            ValueError: The step is negative.
        """
        self.wait()
        step = operator.index(step)
        if step < 0:
            raise ValueError(f"step={step}: steps count from 0")
        if step == self._current:
            return
        save = Save(step, self.directory / STEP.format(step), self.process_id, self.num_processes)
        with save.keeping_errors():
            save.plan(tensors, metadata, copy=background)
        if self.process_id == 0:
            with save.keeping_errors():
                if save.error is None:
                    self._make_room(step)
                    save.open()
        self._barrier()
        if background and (save.error is None or self.num_processes > 1):
            save.start(self._remove_old)
            self._pending = save
        else:
            if save.error is None:
                with save.keeping_errors():
                    save.write()
            self._finish(save)

    def wait(self) -> None:
        """Wait until a save in the background is complete.

        Raises:
            CheckpointError: It was not saved. Earlier checkpoints are kept.
        """
        if self._pending:
            save, self._pending = self._pending, None
            self._finish(save)

    def _finish(self, save: Save) -> None:
        save.join()
        self._barrier()
        if self.process_id == 0 and not save.committed and save.error is None:
            with save.keeping_errors():
                save.commit()
                self._remove_old()
        self._barrier()
        if save.error is not None or not save.final.is_dir():
            if self.process_id == 0 and not save.committed:
                save.discard()
            raise save.explained(self._kept())
        self._current = save.step

    def _kept(self) -> str:
        """Name the checkpoints that are left after a failed save."""
        try:
            steps = self.steps()
        except CheckpointError as error:
            return str(error)
        return f"kept: step {', '.join(map(str, steps))}" if steps else "there is no earlier checkpoint"

    def _make_room(self, step: int) -> None:
        """Clear away what interrupted saves and damage have left.

        Raises:
            CheckpointError: The directory already has a whole step that is not older.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        newer = [other for other in self.steps() if other >= step and other not in self._damaged]
        if newer:
            raise CheckpointError(
                f"step {step} was not saved: {self.directory} already has step {newer[-1]}. "
                "Call restore() first to go on from there, or use another directory."
            )
        for path in self.directory.iterdir():
            if re.fullmatch(r"step-\d{10,}\.(partial|removing)", path.name):
                shutil.rmtree(path)
            elif path.name.startswith((CHOICE, f".{CHOICE}")):
                path.unlink()
        for other in sorted(self._damaged):
            self._set_aside(other)
        self._damaged.clear()

    def _set_aside(self, step: int) -> None:
        path = self.directory / STEP.format(step)
        if path.exists():
            number = len(list(self.directory.glob(f"damaged-{path.name}*")))
            aside = path.with_name(f"damaged-{path.name}{f'.{number}' if number else ''}")
            os.rename(path, aside)  # noqa: PTH104 - one place to count all renames
            LOG.warning("%s is damaged; it was set aside as %s and may be deleted", path, aside.name)

    def _remove_old(self) -> None:
        for step in self.steps()[: -self.keep]:
            path = self.directory / STEP.format(step)
            removing = path.with_name(f"{path.name}.removing")
            try:
                os.rename(path, removing)  # noqa: PTH104 - one place to count all renames
                shutil.rmtree(removing)
            except OSError as error:
                LOG.warning("the old checkpoint %s could not be removed: %s", path, error)

    def restore(
        self,
        *,
        expect: Mapping[str, Any] | None = None,
        part: Callable[[str, tuple[int, ...]], Index | None] | None = None,
        framework: str | None = None,
    ) -> Restored | None:
        """Read the newest checkpoint that is whole.

        A damaged one is passed over, with a warning on the logger `srunbook.checkpoint`. The number of processes may
        differ from that of the save. Process 0 chooses, and all processes read the same step.

        Args:
            expect: The tensors that the checkpoint has to hold: for each name a shape, or an array of that shape and
                type, such as `model.state_dict()`.
            part: Function that, given the name and the global shape of a tensor, returns the box that this process
                needs: one slice for each axis, or None for the whole. By default all tensors are read whole.
            framework: `"numpy"` or `"torch"`; by default what was saved from torch comes back as torch tensors, and
                everything else as NumPy arrays.

        Returns:
            The checkpoint, or None when no whole one exists.

        Raises:
            CheckpointError: The checkpoint is of another model, or cannot be read by all processes.
            ValueError: `framework` is unknown, or `part` returned slices that leave the tensor.
        """
        self.wait()
        if framework not in (None, *FRAMEWORKS):
            raise ValueError(f"framework={framework!r}: it is 'numpy' or 'torch'")

        def read(step: int, *, check_all: bool = False) -> Restored:
            folder = self.directory / STEP.format(step)
            try:
                manifest = manifest_of(folder, step)
                if expect is not None:
                    check_expected(manifest.tensors, expect, str(folder))
                tensors = read_tensors(folder, manifest, part, framework, check_all=check_all)
            except OSError as error:
                if error.errno == errno.EIO:
                    raise DamagedError(f"{error.filename or folder}: {error.strerror}") from error
                raise CheckpointError(f"step {step} cannot be read: {error}") from error
            return Restored(step, tensors, manifest.metadata)

        restored = self._restore_alone(read) if self.num_processes == 1 else self._restore_together(read)
        self._current = restored.step if restored else None
        return restored

    def _restore_alone(self, read: Callable[..., Restored], *, check_all: bool = False) -> Restored | None:
        steps = self.steps()
        for step in reversed(steps):
            try:
                return read(step, check_all=check_all)
            except DamagedError as error:
                self._damaged.add(step)
                LOG.warning("step %d is damaged and is passed over: %s", step, error)
        if steps:
            LOG.warning("none of the %d checkpoints in %s is whole", len(steps), self.directory)
        return None

    def _restore_together(self, read: Callable[..., Restored]) -> Restored | None:
        """Let process 0 read and write down the step it chose; the others read that step and no other."""
        path = self.directory / CHOICE
        restored: Restored | None = None
        error: Exception | None = None
        if self.process_id == 0:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                restored = self._restore_alone(read, check_all=True)
                _files.write_small(path, _manifest.seal({"step": restored.step if restored else None}))
            except Exception as problem:  # raised below, after the barriers
                error = problem
                with contextlib.suppress(OSError):
                    _files.write_small(path, _manifest.seal({"refused": str(problem)}))
        self._barrier()
        if self.process_id != 0:
            try:
                choice = _manifest.unseal(_files.read_small(path), str(path))
                if "refused" in choice:
                    raise CheckpointError(f"process 0 cannot restore: {choice['refused']}")
                step = choice["step"]
                restored = None if step is None else read(step)
            except Exception as problem:  # raised below, after the barrier
                error = problem
        self._barrier()
        if self.process_id == 0:
            with contextlib.suppress(OSError):
                path.unlink()
        if isinstance(error, DamagedError):
            raise CheckpointError(f"process {self.process_id} cannot restore what process 0 chose: {error}") from error
        if error:
            raise error
        return restored
