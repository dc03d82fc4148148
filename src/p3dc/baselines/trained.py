"""The base class of methods with a small module that is trained on base features once and cached.

torch is imported where it is used, so that importing the package does not need it. Gradients inside a task are written
out, so that learning a task needs no automatic differentiation.

Shape letters: T tasks, S support, Q queries, N ways, D features.
"""

import importlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np

from p3dc._arrays import Array, Labels, Progress
from p3dc._validation import check_same_width
from p3dc.adaptive.space import members
from p3dc.baselines.contract import TaskMethod
from p3dc.errors import InputError
from p3dc.features import FeatureSet
from p3dc.io.safetensors import read_arrays, write_arrays
from p3dc.tasks import TaskSampler

Tensor = Any  # torch.Tensor, which a type checker may not find
Weights = dict[str, Tensor]

VERSION = 1  # of the cached weights; raise it when the same settings train other weights
N_WAY, N_QUERY, N_TASKS = 5, 15, 16  # of the base tasks of one step
MOST_SHOTS = 5
SHORTEST = 1e-12  # length of a row whose squares may have lost digits
LARGEST_GRADIENT = 0.1  # length to which gradients are clipped


class TrainedMethod(TaskMethod):
    """Method with a module that is trained on the base classes when it is first needed.

    A method defines what training starts from, the batches of its steps and their loss.

    Parameters
    ----------
    base : FeatureSet
        What the module is trained on. Tasks should have none of these classes.
    cache : path, optional
        Folder that keeps the weights. Without it they last as long as this object.
    random_state : int, default=0
        The same number trains the same weights.
    n_steps : int
        Steps of the training.
    """

    _learning_rate = 1e-3
    _weight_decay = 0.0

    def __init__(
        self, base: FeatureSet, cache: str | os.PathLike[str] | None = None, random_state: int = 0, n_steps: int = 1000
    ) -> None:
        self.base = base
        self.cache = cache
        self.random_state = random_state
        self.n_steps = n_steps

    def train(self, progress: Progress | None = None) -> Self:
        """Train now, or read the cache, instead of at the first task.

        Parameters
        ----------
        progress : callable, optional
            Called after each step with the number of steps done and of all steps.

        Returns
        -------
        self
        """
        self._module(progress=progress)
        return self

    def _initial(self, n_way: int, generator: Any) -> Weights:
        """Make the weights that training starts from."""
        raise NotImplementedError

    def _batches(self, rows: Tensor, n_way: int) -> Iterator[tuple[Any, ...]]:
        """Draw the batch of each step from the base features."""
        raise NotImplementedError

    def _loss(self, weights: Weights, *batch: Any) -> Tensor:
        """Compute the loss of a batch."""
        raise NotImplementedError

    def _module(self, n_way: int = N_WAY, progress: Progress | None = None) -> Weights:
        """Return the trained weights: those of this object, else of the cache, else new ones."""
        load_torch()
        settings = {name: value for name, value in self.get_params(deep=False).items() if name not in ("base", "cache")}
        settings["n_way"] = n_way
        self._check()
        if not hasattr(self, "_trained"):
            self._trained: dict[Any, Weights] = {}
        key = (self.base, *settings.items())
        if key not in self._trained:
            train = self._train if self.cache is None else self._read_or_train
            self._trained[key] = train(settings, progress)
        return self._trained[key]

    def _check(self) -> None:
        if not isinstance(self.base, FeatureSet):
            raise InputError(f"base is of type {type(self.base).__name__}. Give the FeatureSet of the base classes.")
        for name, number, least in (("n_steps", self.n_steps, 1), ("random_state", self.random_state, 0)):
            if not isinstance(number, int | np.integer) or number < least:
                raise InputError(f"{name} is {number!r}. It must be a whole number, {least} or more.")

    def _read_or_train(self, settings: dict[str, Any], progress: Progress | None) -> Weights:
        words = [type(self).__name__, *(f"{name}={value}" for name, value in sorted(settings.items()))]
        words.append(_digest(self.base.features, self.base.labels))
        path = _make_folder(Path(str(self.cache))) / f"{'-'.join(words)}.safetensors"
        shapes = {name: tuple(weight.shape) for name, weight in self._start(settings).items()}
        try:
            arrays, facts = read_arrays(path, "weights", VERSION, required=shapes, facts=["digest"])
        except InputError:  # missing or damaged
            arrays, facts = {}, {}
        intact = {name: array.shape for name, array in arrays.items()} == shapes
        if intact and facts["digest"] == _digest(*arrays.values()):
            return {name: load_torch().from_numpy(array.copy()) for name, array in arrays.items()}
        weights = self._train(settings, progress)
        arrays = {name: weights[name].numpy() for name in sorted(weights)}
        write_arrays(path, "weights", VERSION, arrays, {"digest": _digest(*arrays.values())})
        return weights

    def _start(self, settings: dict[str, Any]) -> Weights:
        return self._initial(settings["n_way"], load_torch().Generator().manual_seed(int(self.random_state)))

    def _train(self, settings: dict[str, Any], progress: Progress | None) -> Weights:
        torch = load_torch()
        with one_torch_thread(), torch.inference_mode(False), torch.enable_grad():
            rows = torch.from_numpy(self.base.features.astype(np.float32))
            weights = {name: start.requires_grad_() for name, start in self._start(settings).items()}
            matrices = [weight for weight in weights.values() if weight.ndim == 2]
            others = [weight for weight in weights.values() if weight.ndim != 2]
            optimizer = torch.optim.AdamW([{"params": matrices}, {"params": others, "weight_decay": 0.0}])
            optimizer.param_groups[0]["weight_decay"] = self._weight_decay
            for step, batch in enumerate(self._batches(rows, settings["n_way"])):
                for group in optimizer.param_groups:
                    group["lr"] = self._learning_rate * (1 + math.cos(math.pi * step / self.n_steps)) / 2
                optimizer.zero_grad()
                self._loss(weights, *batch).backward()
                torch.nn.utils.clip_grad_norm_(weights.values(), LARGEST_GRADIENT)
                optimizer.step()
                if progress:
                    progress(step + 1, self.n_steps)
            return {name: weight.detach() for name, weight in weights.items()}

    def _tensor(self, features: Array) -> Tensor:
        """Copy features to a float32 tensor, and refuse those of another backbone."""
        check_same_width(features, "the features", self.base.features, "the base features")
        return load_torch().from_numpy(np.array(features, dtype=np.float32, order="C"))


class TaskTrainedMethod(TrainedMethod):
    """Method with a module that is trained on tasks of the base classes.

    Parameters
    ----------
    base, cache, random_state, n_steps
        As in :class:`TrainedMethod`.
    n_shot : int, optional
        Shots of the base tasks. By default each step draws a number from 1 to 5.
    """

    def __init__(
        self,
        base: FeatureSet,
        cache: str | os.PathLike[str] | None = None,
        random_state: int = 0,
        n_steps: int = 1000,
        n_shot: int | None = None,
    ) -> None:
        super().__init__(base, cache, random_state, n_steps)
        self.n_shot = n_shot

    def _batches(self, rows: Tensor, n_way: int) -> Iterator[tuple[Any, ...]]:
        """Draw the tasks of each step: support (T, S, D), its labels, queries (T, Q, D), their labels."""
        fewest = int(np.unique(self.base.labels, return_counts=True)[1].min())
        options: dict[str, Any] = {"n_way": n_way, "seed": int(self.random_state), "class_names": self.base.class_names}
        shots = range(1, MOST_SHOTS + 1) if self.n_shot is None else [self.n_shot]
        samplers = [
            TaskSampler(self.base.labels, n_shot=n_shot, n_query=max(1, min(N_QUERY, fewest - n_shot)), **options)
            for n_shot in shots
        ]
        choices = np.random.default_rng(self.random_state).integers(len(samplers), size=self.n_steps)
        for step, choice in enumerate(choices):
            tasks = samplers[choice].draw(N_TASKS, step * N_TASKS)
            batch = []
            for part in (tasks.support, tasks.queries):
                batch += [rows[part.reshape(N_TASKS, -1)], np.repeat(np.arange(n_way), part.shape[2])]
            yield tuple(batch)


def load_torch() -> Any:
    """Import torch, or raise an error that says how to install it."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise InputError(
            'this method is trained with torch, which is not installed. Install it: pip install "p3dc-shot[torch]"'
        ) from None


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Keep torch to one thread: matrices are small, and on a busy machine its threads wait for each other."""
    torch = load_torch()
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def layer(n_in: int, n_out: int, generator: Any) -> tuple[Tensor, Tensor]:
    """Draw the weight (n_out, n_in) and the bias (n_out,) of a linear layer, uniformly within 1 / √n_in."""
    torch = load_torch()
    uniform = torch.rand((n_out, n_in + 1), generator=generator, dtype=torch.float32, device="cpu")
    both = (2 * uniform - 1) / n_in**0.5
    return both[:, :-1].clone(), both[:, -1].clone()


def unit(features: Tensor) -> Tensor:
    """Divide each row by its length; a row of zeros stays as it is."""
    torch = load_torch()
    lengths = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    if not ((lengths > SHORTEST) & (lengths < math.inf)).all():
        powers = torch.frexp(features.abs().amax(dim=-1, keepdim=True)).exponent
        features = torch.ldexp(features, -powers)
        lengths = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    return features / lengths.where(lengths > 0, torch.ones_like(lengths))


def one_hot(labels: Labels) -> Tensor:
    """Mark the class of each sample with a one, (S,) -> (S, N)."""
    return load_torch().from_numpy(members(labels).astype(np.float32))


def averages(samples: Tensor, labels: Labels) -> Tensor:
    """Average the samples of each class, (T, S, D) -> (T, N, D)."""
    own = one_hot(labels)
    return (own / own.sum(dim=0)).T @ samples


def cross_entropy(logits: Tensor, labels: Labels) -> Tensor:
    """Average the cross-entropy of all samples of all tasks, (T, S, N) -> ()."""
    return -(logits.log_softmax(dim=-1) * one_hot(labels)).sum(dim=-1).mean()


def logit_slopes(logits: Tensor, labels: Labels) -> Tensor:
    """Differentiate the average cross-entropy of each task by its logits, (T, S, N) -> (T, S, N)."""
    return (logits.softmax(dim=-1) - one_hot(labels)) / len(labels)


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the cache {folder} cannot be made ({error.strerror}). Give another folder.") from None
    return folder


def _digest(*arrays: Array) -> str:
    digest = sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]
