"""Save and restore checkpoints in a directory, whole or not at all."""

from __future__ import annotations

import functools
import operator
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from srunbook.checkpoint._arrays import FRAMEWORKS, Index
from srunbook.checkpoint._choosing import Chooser
from srunbook.checkpoint._directory import STEP, left_over, make_room, remove_old, state_of, steps_in
from srunbook.checkpoint._errors import CheckpointError
from srunbook.checkpoint._meeting import meet
from srunbook.checkpoint._restoring import Restored, read_step
from srunbook.checkpoint._saving import NO_SPACE, Save
from srunbook.checkpoint._writers import saved_by, wait_for_others


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
        self._damaged: dict[int, tuple[int, ...] | None] = {}
        self._team = secrets.token_hex(8) if num_processes == 1 else None

    def steps(self) -> list[int]:
        """List the steps that have a checkpoint, ascending. `restore` checks their contents.

        Raises:
            CheckpointError: The directory cannot be read.
        """
        return steps_in(self.directory)

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
                self.directory.mkdir(parents=True, exist_ok=True)
        with save.keeping_errors():
            try:
                save.team = self._meet()
            except CheckpointError as error:
                raise CheckpointError(f"step {step} was not saved: {error}") from None
        if self.process_id == 0:
            with save.keeping_errors():
                if save.error is None:
                    self._begin(save)
        self._barrier()
        if background and (save.error is None or self.num_processes > 1):
            save.start(self._remove_old)
            self._pending = save
        else:
            if save.error is None:
                with save.keeping_errors():
                    save.write()
            self._finish(save)

    def _meet(self) -> str:
        """Return the name of the processes of this job, on which they agree at the first call; all of them call this.

        Raises:
            CheckpointError: They did not find each other.
            OSError: The directory cannot be written.
        """
        if self._team is None:
            self._team = meet(self.directory, self.process_id, self.num_processes, self._barrier)
        return self._team

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
        if save.error is not None or not save.is_committed():
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

    def _begin(self, save: Save) -> None:
        """Begin a save when no other job saves, and clear away what is in its way.

        The save is begun before others are cleared away, so that a job to which this happens sees by whom; and after
        they were listed, so that of two jobs which begin at once only one can clear away the other's.

        Raises:
            CheckpointError: Another job saves, or the directory already has a whole step that is not older.
            OSError: It cannot be begun.
        """
        wait_for_others(self.directory, str(self._team))
        for step in reversed(self.steps()):
            folder = self.directory / STEP.format(step)
            if step >= save.step and (step not in self._damaged or self._damaged[step] != state_of(folder)):
                raise CheckpointError(
                    f"step {save.step} was not saved: {self.directory} already has step {step}{saved_by(folder)}. "
                    "Call restore() first to go on from there, or use another directory."
                )
        room = functools.partial(make_room, self.directory, self.keep, left_over(self.directory), self._damaged)
        try:
            save.open()
            room()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            room()
            save.open()
        self._damaged.clear()

    def _remove_old(self) -> None:
        remove_old(self.directory, self.keep)

    def restore(
        self,
        *,
        expect: Mapping[str, Any] | None = None,
        part: Callable[[str, tuple[int, ...]], Index | None] | None = None,
        framework: str | None = None,
    ) -> Restored | None:
        """Read the newest checkpoint that is whole.

        A damaged one is passed over, with a warning on the logger `srunbook.checkpoint`. The number of processes may
        differ from that of the save. Process 0 chooses, and all processes read the same step. Where the directory
        cannot be written, each process checks all files, so that each chooses the same.

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

        read = functools.partial(read_step, self.directory, expect=expect, part=part, framework=framework)
        chooser = Chooser(self.directory, read, self._damaged)
        if self.num_processes == 1:
            restored = chooser.alone()
        else:
            restored = chooser.together(self._meet_or_not(), self.process_id, self._barrier)
        self._current = restored.step if restored else None
        return restored

    def _meet_or_not(self) -> str | None:
        try:
            return self._meet()
        except (CheckpointError, OSError):  # as in a directory that can only be read
            return None
