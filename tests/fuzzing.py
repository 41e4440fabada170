"""Damaged and forged files, tried one after the other in a process of its own, which may be killed by none of them.

`python -m tests.fuzzing FOLDER SEED KIND:COUNT ...`: whatever a file says, it is read, or refused by ValueError or OSError with
its path in the message; nothing is unpickled, no file outside of the folder is opened, and memory is bounded.
"""

import json
import random
import resource
import shutil
import sys
import traceback
import warnings
import zlib
from collections import Counter
from pathlib import Path

import dask
import numpy as np
import scipy.sparse as sp
import zarr

import dasksvm
from dasksvm import Dataset, KernelModel, LaSVC
from dasksvm.data import stored
from dasksvm.data.array_file import MARK, TAIL
from tests.models import some_model

NASTY = [
    *(None, True, False, -1, 0, 1, 2, 3, 255, 2**31 - 1, 2**31, 2**40, 2**60, 2**63, 2**70, 10**30),
    *(0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "\ud800", "../../../etc/passwd", "/etc/passwd"),
    *("|O", "<U1", "<U999999", "|O8", "<f8", "<i8", "|u1", "V8", "<M8[s]", "i4,i4", "float64", "string", "pickle"),
    *([], {}, [[]], [2**40], [2**40, 2**40], [1, 1], {"a": 1}, [None], ["a", "b"], {"name": "pickle"}),
    *({"name": "numcodecs.pickle", "configuration": {}}, {"name": "vlen-utf8"}, {"name": "gzip", "configuration": {}}),
    *({"name": "regular", "configuration": {"chunk_shape": [2**50]}}, {"name": "blosc", "configuration": {}}),
]
MEMORY = 2 << 30
PICKLING = ("builtins", "copyreg", "collections", "dask", "dasksvm", "numba", "numpy", "scipy")


def pick(rng, items):
    return items[rng.randrange(len(items))]


def bitten(rng, content):
    """Change bytes: flip, cut, insert, repeat, overwrite, exchange."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, to = sorted((rng.randrange(len(content) + 1), rng.randrange(len(content) + 1)))
        to = min(to, at + rng.choice((1, 2, 8, 10**9)))
        change = rng.randrange(5)
        if change == 0 and content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        elif change == 1:
            del content[at:to]
        elif change == 2:
            content[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif change == 3:
            content[at:at] = content[at:to]
        else:
            content[at:to] = bytes([rng.choice((0, 1, 127, 128, 255))]) * (to - at)
    return bytes(content)


def places(tree):
    """List the leaves and branches of a JSON tree, each by what holds it and its key."""
    found = []
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        found.append((tree, key))
        if isinstance(tree[key], dict | list):
            found += places(tree[key])
    return found


def forged(rng, tree):
    """Say something else in a JSON tree, and give its text."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = pick(rng, places(tree))
        change = rng.randrange(5)
        if change == 0:
            del holder[key]
            if not places(tree):
                break
        elif change == 1 and isinstance(holder[key], int):
            holder[key] = holder[key] + rng.choice((-1, 1, 7, -(2**40), 2**40))
        elif change == 2 and isinstance(holder, dict):
            holder[key] = pick(rng, list(holder.values()))
        else:
            holder[key] = pick(rng, NASTY)
    text = json.dumps(tree)
    return "[" * 100_000 if rng.random() < 0.01 else text


# Models


def mutated_model(rng, path):
    model, _ = some_model(rng.randrange(1000))
    model.save(path)
    whole = path.read_bytes()
    start, length, _ = TAIL.unpack(whole[-TAIL.size - len(MARK) : -len(MARK)])
    kind = rng.randrange(3)
    if kind == 0:
        path.write_bytes(bitten(rng, whole))
        return
    header = json.loads(whole[start : start + length])
    body = bytearray(whole[:start])
    if kind == 1:
        text = forged(rng, header).encode()
    else:  # other content, with checksums that are right
        entry = pick(rng, header["arrays"])
        at = header["arrays"].index(entry)
        ends = [*(other["start"] for other in header["arrays"][at + 1 :]), start]
        values = np.frombuffer(body[entry["start"] : ends[0]], entry["dtype"]).copy()
        if values.size and values.dtype.kind in "iufb":
            number = rng.choice((-1, 0, 1, 2**31 - 1, -(2**31), 2**40, 1e300, np.nan, np.inf))
            with np.errstate(all="ignore"):
                values[rng.randrange(values.size)] = np.array(number).astype(values.dtype)
        body[entry["start"] : ends[0]] = values.tobytes()
        entry["crc32"] = zlib.crc32(values.tobytes())
        text = json.dumps(header).encode()
    path.write_bytes(bytes(body) + text + TAIL.pack(len(body), len(text), zlib.crc32(text)) + MARK)


def use_model(model):
    if model.width > 1000:
        return
    X = np.random.default_rng(0).normal(size=(5, model.width))
    for rows in (X, sp.csr_matrix(X), X.astype(np.float32)):
        model.decision_function(rows)
        model.predict(rows)


def try_model(rng, folder):
    path = folder / "model"
    mutated_model(rng, path)
    use_model(dasksvm.load(path))


def try_libsvm(rng, folder):
    path = folder / "model.txt"
    model, _ = some_model(rng.randrange(1000), text=False, scaled=False, classes=rng.choice((2, 3)), pairwise=True)
    model.to_libsvm(path)
    lines = path.read_bytes().split(b"\n")
    for _ in range(rng.choice((1, 1, 2))):
        at, change = rng.randrange(len(lines)), rng.randrange(5)
        words = lines[at].split(b" ")
        if change == 0:
            lines[at] = bitten(rng, lines[at])
        elif change == 1:
            words[rng.randrange(len(words))] = str(pick(rng, NASTY)).encode("utf-8", "replace")
            lines[at] = b" ".join(words)
        elif change == 2:
            words[-1] = f"{pick(rng, NASTY)}:{pick(rng, NASTY)}".encode("utf-8", "replace")
            lines[at] = b" ".join(words)
        elif change == 3:
            lines[at] = lines[rng.randrange(len(lines))]
        else:
            del lines[at]
            lines = lines or [b""]
    path.write_bytes(b"\n".join(lines))
    use_model(KernelModel.from_libsvm(path))


# Data sets


def bases(folder):
    """Make data sets of every kind."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) * (rng.random((60, 5)) < 0.5)
    y = np.where(rng.random(60) < 0.5, "a", "b")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Dataset.create(folder / "dense", X, y, np.ones(60), scale="standard", chunk_rows=20, random_state=0)
        Dataset.create(folder / "sparse", sp.csr_matrix(X), y == "a", chunk_rows=20, random_state=0)
        Dataset.create(folder / "bare", X.astype(np.float32), False, chunk_rows=20, shuffle=False)
    return [folder / name for name in ("dense", "sparse", "bare")]


def mutated_data(rng, path):
    files = sorted(file for file in path.rglob("*") if file.is_file())
    texts = [file for file in files if file.name == "zarr.json"]
    chunks = [file for file in files if file.name != "zarr.json"]
    kind = rng.randrange(6)
    if kind == 0:
        file = pick(rng, files)
        if rng.random() < 0.2:
            file.unlink()
        else:
            file.write_bytes(bitten(rng, file.read_bytes()))
    elif kind == 1:
        file = pick(rng, texts)
        file.write_text(forged(rng, json.loads(file.read_text())))
    elif kind == 2:  # the description alone
        file = path / "zarr.json"
        tree = json.loads(file.read_text())
        text = forged(rng, tree["attributes"]["dasksvm"])
        tree["attributes"]["dasksvm"] = None if text.startswith("[[") else json.loads(text)
        file.write_text(json.dumps(tree))
    elif kind == 3:
        one, other = pick(rng, chunks), pick(rng, chunks)
        one.write_bytes(other.read_bytes())
    elif kind == 4:  # other content, packed as it should be
        group = zarr.open_group(str(path), mode="a")
        name = pick(rng, [str(file.parent.relative_to(path)) for file in texts if file.parent != path])
        if hasattr(group[name], "shape"):
            values = group[name][:]
            number = rng.choice((-1, 0, 1, 7, 2**31 - 1, -(2**31), 2**40, 1e300, np.nan, np.inf))
            with np.errstate(all="ignore"):
                values.reshape(-1)[rng.randrange(values.size)] = np.array(number).astype(values.dtype)
            group[name][:] = values
    else:  # another array in the place of one
        group = zarr.open_group(str(path), mode="a")
        name = pick(rng, ["X", "y", "features", "X/data", "X/indptr", "X/indices", "source", "weight"])
        shape = pick(rng, [(60,), (61,), (60, 5), (4, 5), (6, 5), (0,), (), (2**40,), (2**40, 5)])
        dtype = pick(rng, ["f8", "i4", "i8", "u1", "bool", "c16", str, "U4"])
        if name.startswith("X/") and "X" in group and hasattr(group["X"], "shape"):
            name = "X"
        group.create_array(
            name, shape=shape, chunks=tuple(min(n, 2**31) or 1 for n in shape), dtype=dtype, overwrite=True
        )


def use_data(data):
    ids = np.arange(len(data)) if len(data) < 1000 else np.arange(10)
    data.rows(ids)
    data.source_rows(ids)
    data.weights(ids)
    for at in range(min(len(data.chunks()), 5)):
        data.part(at)
    if len(data) < 1000:
        X, y = data.as_dask()
        dask.compute(X, y, scheduler="sync")
        data.ids_of(ids)
    if data.labelled:
        data.labels(ids)
        LaSVC(max_examples=50, cache_size=20, random_state=0).fit(data).decision_function(data).compute(
            scheduler="sync"
        )


def try_data(rng, folder):
    if not (folder / "bases").exists():
        bases(folder / "bases")
    path = folder / "data"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(pick(rng, sorted((folder / "bases").iterdir())), path)
    mutated_data(rng, path)
    use_data(Dataset.open(path))


KINDS = {"model": ("model", try_model), "libsvm": ("model.txt", try_libsvm), "data": ("data", try_data)}


def watch(folder, faults):
    """Note what no file may bring about: objects made by pickle, files opened elsewhere."""
    # What Python, its packages and the system open for themselves.
    known = [str(folder), sys.prefix, sys.base_prefix, str(Path(__file__).parent.parent), "/proc", "/sys", "/dev"]

    def hook(event, arguments):
        # Dask and numba pickle their own; what a file could plant calls something else.
        if event == "pickle.find_class" and arguments[0].split(".")[0] not in PICKLING:
            faults.append(f"unpickled {arguments}")
        if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith("/"):
            path = str(Path(arguments[0]).resolve())
            if not path.startswith(tuple(known)):
                faults.append(f"opened {path}")

    sys.addaudithook(hook)


def main(folder, seed, *wanted):
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    folder = Path(folder)
    stored.RETRIES = (0.001, 0.001)
    # What is loaded on first use takes memory and opens files: before the watch begins.
    for path in bases(folder / "first"):
        use_data(Dataset.open(path))
    use_model(some_model(0)[0])
    lines = Path("/proc/self/status").read_text().splitlines()
    used = int(next(line for line in lines if line.startswith("VmSize")).split()[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    faults, outcomes = [], Counter()
    watch(folder, faults)
    for kind, count in (word.split(":") for word in wanted):
        for number in range(int(seed), int(seed) + int(count)):
            print("trying", kind, number, flush=True)
            outcomes[kind, attempt(kind, number, folder, faults)] += 1
            if faults:
                print(f"{kind} {number}: {faults}", file=sys.stderr)
                return 1
    print(json.dumps({f"{kind} {outcome}": count for (kind, outcome), count in sorted(outcomes.items())}))
    return 0


def attempt(kind, number, folder, faults):
    """Make a file and try it; tell what came of it."""
    path, work = KINDS[kind]
    try:
        work(random.Random(number), folder)
    except (ValueError, OSError) as error:
        if str(folder / path) not in str(error):
            faults.append(f"no path in: {error}")
            traceback.print_exc()
        return type(error).__name__
    except BaseException as error:
        traceback.print_exc()
        faults.append(f"{type(error).__name__} instead of ValueError or OSError")
    return "read"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
