"""The lines that bring a value into the form that an op takes: see values.py."""

import math

from .values import N, Refused, Value, require


class Axes:
    """What a Writer (text.py) does with the axes of values."""

    def arranged(self, x, groups, rows=(), shared=False):
        """The name of a line whose axes behind the samples are these groups of axes of x, each
        joined; the axes in `rows` are joined with the samples. What is in no group has size 1."""
        order = [0, *rows, *(i for group in groups for i in group)]
        sizes = [N(math.prod(x.axes[i] for i in rows)),
                 *(math.prod(int(x.axes[i]) for i in group) for group in groups)]
        order += [i for i in range(len(x.axes)) if i not in order]
        if x.shared and not shared:
            padded = [1] * (len(sizes) - len(x.axes)) + x.axes[1:]
            if order == sorted(order) and not rows and padded == sizes[1:]:
                return self.emit("expand", [x], sizes)
            x = self.lifted(x)
        name, axes = x.name, [x.axes[i] for i in order]
        real = [i for i in order if x.axes[i] != 1]
        if real != sorted(real):
            moved = [i for i, j in enumerate(order) if i != j]
            if len(moved) == 2:
                name = self.emit("transpose", [name], axes, shared=shared, dim0=moved[0],
                                 dim1=moved[1])
            else:
                name = self.emit("permute", [name], axes, shared=shared, order=order)
        else:
            axes = x.axes
        return name if axes == sizes else self.emit("reshape", [name], sizes, shared=shared)

    def dense(self, x, only=None, like=None):
        """x with an axis for each dimension in which its numbers repeat; rows of the samples are
        in the order that they have in `like`."""
        repeats = [d for d, axes in enumerate(x.dims) if not axes and x.shape[d] != 1 and
                   (only is None or d in only)]
        if not repeats:
            return x
        x = self.lifted(x)
        axes, dims = list(x.axes), [list(g) for g in x.dims]
        for d in repeats:
            if like and like.dims[d] and isinstance(x.shape[d], N):
                sizes = like.sizes(d)
            elif isinstance(x.shape[d], N):
                sizes = [N(1), *([int(x.shape[d])] if int(x.shape[d]) > 1 else [])]
            else:
                sizes = [x.shape[d]]
            for size in sizes:
                dims[d].append(0 if isinstance(size, N) else len(axes))
                axes += [] if isinstance(size, N) else [size]
        name = x.name
        if axes != x.axes:
            ones = x.axes + [1] * (len(axes) - len(x.axes))
            name = self.emit("expand", [self.emit("reshape", [name], ones)], axes)
        return x.but(name=name, axes=axes, dims=dims)

    def joined(self, x):
        """x with one axis for what follows each other in the tensor, up to the samples."""
        x, runs = self.dense(x), [[]]
        for i in (i for axes in x.dims for i in axes):
            runs = [*runs, []] if i == 0 else [*runs[:-1], [*runs[-1], i]]
        name, at = self.arranged(x, runs, shared=x.shared), iter(range(1, len(runs) + 1))
        axes = [N(1), *(math.prod(x.axes[i] for i in run) for run in runs)]
        flat = [next(at), *([0, next(at)] if len(runs) > 1 else [])]
        flat = [i for i in flat if axes[i] != 1 or i == 0]
        total = math.prod(int(n) for n in x.shape)
        return Value(name, axes, [N(total) if x.of_samples else total], [flat], x.shared, x.dtype)

    def coarse(self, x):
        """x with one axis for those that follow each other in its line and in a dimension."""
        joined = {j for axes in x.dims for i, j in zip(axes, axes[1:]) if i and j == i + 1}
        at, axes = {}, []
        for i, size in enumerate(x.axes):
            if i in joined:
                axes[-1] *= size
            else:
                at[i] = len(axes)
                axes.append(size)
        return x.but(name=self.emit("reshape", [x], axes, shared=x.shared), axes=axes,
                     dims=[[at[i] for i in group if i in at] for group in x.dims])

    def view(self, x, shape):
        """x.reshape(shape), of which each dimension takes axes of x, or a part of one."""
        if [n for n in shape if n != 1] == [n for n in x.shape if n != 1]:
            dims = iter([axes for axes, n in zip(x.dims, x.shape) if n != 1])
            return x.but(shape=list(shape), dims=[[] if n == 1 else next(dims) for n in shape])
        x = self.dense(x)
        found = self._taken(x, shape)
        if found and sum(map(len, found[1].values())) > 8:
            x = self.coarse(x)
            found = self._taken(x, shape)
        if found is None:
            x = self.joined(x)
            found = self._taken(x, shape)
        require(found is not None, "its result mixes samples: the first dimension alone may be "
                                   "that of the samples")
        dims, parts = found
        if all(len(p) == 1 for p in parts.values()):
            return x.but(shape=list(shape), dims=[[i for i, _ in axes] for axes in dims])
        at, axes = {}, []
        for i, size in enumerate(x.axes):
            for k, part in enumerate(parts.get(i, [] if i else [size])):
                at[i, k] = len(axes)
                axes.append(part)
        name = self.emit("reshape", [x], axes, shared=x.shared)
        return x.but(name=name, axes=axes, shape=list(shape),
                     dims=[[at[key] for key in axes] for axes in dims])

    def _taken(self, x, shape):
        """For each dimension of `shape` the (axis, part) it takes, and the sizes of the parts."""
        left = [(i, 0) for axes in x.dims for i in axes if x.axes[i] != 1]
        parts, dims = {i: [x.axes[i]] for i, _ in left}, []
        for size in shape:
            need, samples, axes = int(size), isinstance(size, N), []
            while need > 1 or samples:
                if not left:
                    return None
                i, k = left[0]
                if i == 0:
                    if not samples:
                        return None
                    samples = False
                elif need % parts[i][k] == 0 and need > 1:
                    need //= parts[i][k]
                elif parts[i][k] % need == 0 and need > 1:
                    parts[i][k:] = [need, parts[i][k] // need]
                    left.insert(1, (i, k + 1))
                    need = 1
                else:
                    return None
                axes.append(left.pop(0))
            dims.append(axes)
        return (dims, parts) if not left else None

    def refined(self, values, shape, skip=()):
        """The values with as many dimensions, and each dimension of the same axes in all."""
        values = [x.of_rank(len(shape)) for x in values]
        for d in range(len(shape)):
            lists = [x.sizes(d) for x in values if x.dims[d]]
            if d in skip or len({tuple(map(str, s)) for s in lists}) < 2:
                continue
            fine = lists[0]
            for other in lists[1:]:
                fine = _common(fine, other)
            for i, x in enumerate(values):
                if x.dims[d] and x.sizes(d) != fine:
                    y = self.view(x, [*x.shape[:d], *fine, *x.shape[d + 1:]])
                    group = [j for axes in y.dims[d:d + len(fine)] for j in axes]
                    values[i] = y.but(shape=x.shape,
                                      dims=[*y.dims[:d], group, *y.dims[d + len(fine):]])
        return values

    def beside(self, values, shape, skip=(), last=False, direct=False):
        """The lines of values with their axes in one order, which is that of the largest: their
        names, the sizes of the result, its dims, and where its axes of each dimension in `skip`
        are, in which the values differ; these are behind all others with `last`. direct: shared
        values may stand beside others, and need no copies."""
        shared = all(x.shared for x in values)
        values = self.refined(values, shape, skip)
        skip = [d % len(shape) for d in skip]
        first = max(values, key=lambda x: (not x.shared, math.prod(map(int, x.axes))))
        keys = []  # (dimension, which of its axes), in the order of the first one's axes
        for x in [first, *values]:
            own = sorted((i, (d, k)) for d, axes in enumerate(x.dims) for k, i in enumerate(axes))
            keys += [key for i, key in own if key not in keys and i]
        keys += [(d, 0) for d in skip if (d, 0) not in keys]
        if last:
            keys.sort(key=lambda key: (skip.index(key[0]) + 1 if key[0] in skip else 0))
        samples = next(((d, k) for x in values for d, axes in enumerate(x.dims)
                        for k, i in enumerate(axes) if i == 0), None)
        axes, names = [N(1)] + [1] * len(keys), []
        for x in values:
            groups = [[x.dims[d][k]] if k < len(x.dims[d]) and x.dims[d][k] else []
                      for d, k in keys]
            for at, group in enumerate(groups, 1):
                axes[at] = max(axes[at], *(x.axes[i] for i in group), 1)
            sizes = [math.prod(x.axes[i] for i in group) for group in groups]
            real = [i for group in groups for i in group if x.axes[i] != 1]
            names.append(x.name if direct and x.shared and real == sorted(real) and
                         [1] * (len(sizes) - len(x.axes) + 1) + x.axes[1:] == sizes else
                         self.arranged(x, groups if shared else groups or [[]], shared=shared))
        at = {key: i for i, key in enumerate(keys, 1)} | {samples: 0}
        dims = [[at[d, k] for k in range(max([len(x.dims[d]) for x in values] + [d in skip]))]
                for d in range(len(shape))]
        return names, axes if keys or shared else [N(1), 1], dims, [at[d, 0] for d in skip]

    def together(self, op, values, shape, **settings):
        """A line that computes element by element of several values; None is no operand."""
        given = [self.value(x) for x in values if x is not None]
        direct, shared = op in ("add", "subtract", "multiply"), all(x.shared for x in given)
        names, axes, dims, _ = self.beside(given, shape, direct=direct)
        rest = iter(names)
        name = self.emit(op, [x if x is None else next(rest) for x in values], axes,
                         shared=shared, **settings)
        return Value(name, axes, shape, dims, shared, given[0].dtype)

    # ---- what an op takes

    def axes_of(self, x, *dims):
        """Their axes; none may be that of the samples."""
        axes = [i for d in dims for i in x.dims[d]]
        require(0 not in axes, "it mixes samples: give dim, without that of the samples")
        return axes

    def last(self, x, *dims):
        """x with these dimensions as the last axes of its line, and those before them."""
        x = self.lifted(self.dense(x, only=[d % x.rank for d in dims]))
        behind = [self.axes_of(x, d) for d in dims]
        flat = [i for axes in behind for i in axes]
        before = [i for i in range(1, len(x.axes)) if i not in flat and
                  any(i in axes for axes in x.dims)]
        return self.arranged(x, [*([i] for i in before), *behind]), x, before

    def result(self, name, x, before, dims, sizes, shape=None):
        """What comes of `last`: dimension dims[i] has now the size sizes[i], None is gone."""
        at = {0: 0} | {i: k + 1 for k, i in enumerate(before)}
        new = [[at[i] for i in axes if i in at] for axes in x.dims]
        axes, to = [N(1), *(x.axes[i] for i in before)], list(x.shape)
        for d, size in zip(dims, sizes):
            new[d], to[d] = [len(axes)] if size != 1 else [], size
            axes.append(size)
        return Value(name, axes, shape or to, new, dtype=x.dtype)

    def rows(self, x):
        """The name of a line as the tensor is, whose first dimension may have several rows of each
        sample, and how many."""
        x = self.dense(x, only=range(1, x.rank))
        first = [i for i in x.dims[0] if i]
        require(not any(0 in axes for axes in x.dims[1:]),
                "it takes a tensor in which the samples are not in front")
        name = self.arranged(x, x.dims[1:], rows=first)
        return name, x, [x.axes[i] for i in first]

    def of_rows(self, name, x, count, shape):
        """The value of a line that came of `rows`."""
        rest = [int(n) for n in shape[1:]]
        if count:
            name = self.emit("reshape", [name], [N(1), *count, *rest])
        front = list(range(1, len(count) + 1))
        if 0 in x.dims[0]:
            at = iter(front)
            front = [0 if i == 0 else next(at) for i in x.dims[0]]
        elif not count and x.shape[0] != 1:
            front = []
        dims = [front, *([len(count) + 1 + d] if n != 1 else [] for d, n in enumerate(rest))]
        return Value(name, [N(1), *count, *rest], shape, dims, dtype=x.dtype)


def _common(a, b):
    """Sizes of which those in a are products, and those in b."""
    a, b, out = list(a), list(b), []
    while a and b:
        x, y = a.pop(0), b.pop(0)
        if x == y:
            out.append(x)
        elif isinstance(x, N) or isinstance(y, N):
            raise Refused("its result mixes samples: they lie in other orders")
        elif x % y == 0:
            out.append(y)
            a.insert(0, x // y)
        elif y % x == 0:
            out.append(x)
            b.insert(0, y // x)
        else:
            rest = [*a, *b]
            require(not any(isinstance(n, N) for n in rest), "its result mixes samples")
            return [*out, x * math.prod(a)]
    return out
