"""Job specifications: what is accepted, what is refused and how, and where values come from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from srunbook import generate, sites
from srunbook._connections import OTHER_FILES
from srunbook.generate import JobError, JobSpecification, Layer
from srunbook.generate.specification import choices

ROOT = Path(__file__).resolve().parents[2]
MINIMUM = {"nodes": 2, "cpus_per_node": 8, "script": "train.py"}
GPU = {"platform": "gpu", "gpus_per_node": 4}


def specified(**values) -> JobSpecification:
    """Specify a job of two nodes, with other values."""
    return generate.specify(Layer("here", {**MINIMUM, **values})).specification


def directives(**values) -> list[str]:
    """Return the directives of a job's script."""
    lines = generate.render(specified(**values)).splitlines()
    return [line.split("  #")[0].rstrip() for line in lines if line.startswith("#SBATCH")]


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Read the text of a configuration file, `a.yaml`."""
    monkeypatch.chdir(tmp_path)

    def layer(text: str | bytes) -> Layer:
        path = Path("a.yaml")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return generate.read_config(path)

    return layer


@pytest.mark.parametrize(
    ("values", "directive"),
    [
        ({"account": "abc@a100"}, "--account=abc@a100"),
        ({"constraint": "[a100*2|h100]&!old"}, "--constraint=[a100*2|h100]&!old"),
        ({"memory_per_node": "0", "memory_per_cpu": None}, "--mem=0"),
        *(({"time_limit": form}, f"--time={form}") for form in ("30", "1-12:00:00", "UNLIMITED")),
        *(({"signal": form}, f"--signal={form}") for form in ("TERM", "R:USR1@120")),
        *(({"output": form}, f"--output={form}") for form in ("/scratch/me/%x-%j.out", "../%j.out")),
        ({"output": "logs/%x_%j.out"}, "--output=%x_%j.out"),
        ({"account": 'a "b" #1'}, r'--account="a \"b\" #1"'),
        ({"sbatch": {"comment": "it's\\"}}, '--comment="it\'s\\\\"'),
        ({"sbatch": {"contiguous": True}}, "--contiguous"),
        ({"gpus_per_node": 6, "cpus_per_node": 64}, "--cpus-per-task=10"),
        ({**GPU, "gpus_per_node": "a100:4"}, "--gres=gpu:a100:4"),
        ({**GPU, "gpus_per_node": "2080ti:4", "gpu_option": "gpus-per-node"}, "--gpus-per-node=2080ti:4"),
        ({**GPU, "gpus_per_node": "a100:4", "gpu_option": "gpus-per-task"}, "--gpus-per-task=a100:1"),
        ({**GPU, "gpu_option": "gpus-per-task", "framework": "torchrun"}, "--gpus-per-task=4"),
    ],
)
def test_what_slurm_takes_is_passed_on(values, directive):
    """Whatever Slurm accepts reaches it unchanged."""
    assert f"#SBATCH {directive}" in directives(**values)


def test_gpus_of_whole_nodes_are_not_asked_for():
    """Where the partition gives whole nodes the script asks for no GPUs, and still starts a process for each."""
    text = " ".join(directives(**GPU, gpu_option="none"))

    assert "--ntasks-per-node=4" in text
    assert "gpu" not in text
    assert "gres" not in text


@pytest.mark.parametrize("name", sites.names())
@pytest.mark.parametrize("framework", choices("framework"))
@pytest.mark.parametrize("profile", ["debug", "production"])
def test_sites_and_profiles_fit_each_other(name, profile, framework):
    """Each profile goes with each site and framework; gloo asks for none of the site's GPUs."""
    layer = Layer("here", {"cluster": name, "profile": profile, "framework": framework, "script": "train.py"})
    job = generate.specify(layer).specification

    assert job.nodes == generate.PROFILES[profile]["nodes"]
    assert bool(job.gpus) == ("gpus_per_node" in sites.read(name) and framework != "gloo")


def test_fields_of_the_older_guide(read):
    """A configuration with all fields of the older guide is read, 12:00:00 without quotes too."""
    text = """\
name: my_cluster
nodes: 4
cpus_per_node: 16
memory_per_cpu: "8G"
time_limit: 12:00:00
partition: "compute"
coordinator_port: 12345
platform: "cpu"
env_vars: {JAX_ENABLE_X64: "1", NCCL_SOCKET_IFNAME: "ib0"}
modules_to_load: ["python/3.11", "gcc/11.2.0"]
"""
    job = generate.specify(read(text), Layer("--script", {"script": "my_svgd.py"}))

    assert job.specification.time_limit == "12:00:00"
    assert job.specification.devices == 64
    assert job.origin("qos") == "default"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("nodes: banana", ["a.yaml:1: nodes is 'banana'", "1 or more", "nodes: 4"]),
        ("node: 2", ["a.yaml:1: unknown key 'node'", "did you mean nodes?"]),
        ("xyzzy: 1", ["the keys are script, arguments", "put it under sbatch:"]),
        ("modules_to_load: [2023]", ["modules_to_load[0] is 2023", "Put it in quotes"]),
        ('env_vars:\n  A: "1"\n  B: 2', ["a.yaml:3: env_vars.B is 2", "Put it in quotes"]),
        ("env_vars:\n  PATH: /x", ["a.yaml:2: the variable PATH", "replaces all of it"]),
        ("exclusive: yes", ["exclusive is 'yes'", "true or false"]),
        ("platform: gpu", ["a.yaml:1: platform 'gpu' needs GPUs"]),
        ("gpus_per_node: 6\nprocesses_per_node: 4", ["a.yaml:2: processes_per_node 4 cannot share 6 GPUs evenly"]),
        ("signal: B:USR1@60", ["signal is 'B:USR1@60'", "USR1@120"]),
        ("memory_per_cpu: 1G\nmemory_per_node: 8G", ["a.yaml:2: memory_per_node '8G' cannot go with memory_per_cpu"]),
        ("container_engine: pyxis", ["a.yaml:1: container_engine is only for a job in a container", "container_image"]),
        ("container_image: x\ncontainer_mounts: [data]", ["container_mounts[0] is 'data'"]),
        ("virtual_environment: ~bob/env", ["virtual_environment is '~bob/env'"]),
        ("script: -x.py", ["script is '-x.py'", "a dash"]),
        ("nodes: 2\nnodes: 3", ["a.yaml:2: "]),
        ("nodes: [", ["a.yaml:1: "]),
        ("x: !!python/object:os.system a", ["a.yaml:1: "]),
        ("nodes: " + "9" * 5000, ["cannot be read as YAML"]),
        (b"nodes: 2\nname: \xff", ["a.yaml:2: byte 0xff is not UTF-8"]),
    ],
)
def test_refused(read, text, parts):
    """A value that is not allowed, or no YAML, is refused with its line, what was found, and what is right."""
    with pytest.raises(JobError) as caught:
        generate.specify(Layer("profile", MINIMUM), read(text))

    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize("name", [*JobSpecification.model_fields, "variable"])
def test_no_field_takes_a_control_character(name):
    """No value can make a line of its own, in any field."""
    for mark in "\n\r\t\x00\x1b\x85\u2028":
        wrong = f"a{mark}b"
        forms = {
            **{key: [wrong] for key in ("arguments", "modules_to_load", "setup")},
            **{key: {"A": wrong} for key in ("env_vars", "sbatch")},
            "variable": {wrong: "a"},
        }
        values = {"env_vars" if name == "variable" else name: forms.get(name, wrong)}

        with pytest.raises(JobError):
            specified(**values)


@pytest.mark.parametrize(
    ("values", "count", "advice"),
    [
        ({"nodes": 4, "cpus_per_node": 15}, 930, "--set devices_per_process=5 makes it 110"),
        ({"nodes": 464, "cpus_per_node": 2}, 2780, "take fewer processes, or have the limit raised (ulimit -Hn)"),
        ({"nodes": 8, "cpus_per_node": 32, "framework": "torchrun"}, 0, None),
        ({"nodes": 8, "cpus_per_node": 32, "platform": "gpu", "gpus_per_node": 4}, 0, None),
    ],
)
def test_connections(values, count, advice):
    """With k of D devices in each of P processes it is k(D-1) + k(P-1); near 1024 the most that fit are named."""
    one = specified(**values)

    assert generate.connections(one) == count
    assert generate.advice(one) == advice


def test_connections_are_near_those_measured():
    """With several processes, what is foretold is at most the measured number, and misses it by fewer than OTHER_FILES.

    So the sum with them, from which the advice follows, errs on the safe side.
    """
    measured = json.loads((ROOT / "bench" / "results" / "svgd_devices.json").read_text(encoding="utf-8"))
    for row in measured["configurations"]:
        layout = row["parameters"]
        one = specified(nodes=layout["processes"], cpus_per_node=layout["devices_per_process"])
        for count in row["samples"]["connections"]:
            assert 0 <= count - generate.connections(one) < OTHER_FILES, row["name"]
        assert (generate.advice(one) is None) == (layout["with_1024_files"] == "runs"), row["name"]


def test_later_wins(read):
    """A cluster wins over a profile, a file over both, an option over the file, whatever the order of the options."""
    job = generate.specify(
        read("cpus_per_node: 36\nenv_vars: {A: a, B: b}"),
        Layer("--profile", {"profile": "small", "cluster": "raven", "script": "train.py"}),
        *generate.settings(["nodes=3", "env_vars.B=c", "constraint="]),
    )
    one = job.specification

    assert (one.nodes, one.cpus_per_node, one.gpus) == (3, 36, 4)
    assert one.constraint is None
    assert one.env_vars == {"A": "a", "B": "c"}
    assert job.origin("env_vars", "B") == "--set env_vars.B=c"
    assert job.origin("gpus_per_node") == "cluster raven"
    assert job.origin("time_limit") == "profile small"


def test_one_of_a_pair_takes_back_the_other():
    """Memory for each node, as Raven counts it, takes the place of a profile's memory for each CPU, and back."""
    layers = [Layer("here", {"profile": "small", "cluster": "raven", "script": "a.py"})]
    there = generate.specify(*layers).specification
    back = generate.specify(*layers, *generate.settings(["memory_per_cpu=2G"])).specification

    assert (there.memory_per_cpu, there.memory_per_node) == (None, "500000M")
    assert (back.memory_per_cpu, back.memory_per_node) == ("2G", None)


@pytest.mark.parametrize(
    ("option", "part"),
    [("nodes", "no '=' in it"), ("nodes.x=1", "nodes has no parts"), ("env_vars=A", "which of env_vars?")],
)
def test_setting_refused(option, part):
    """An option --set that is wrong is refused, and named."""
    with pytest.raises(JobError, match=re.escape(part)):
        generate.specify(Layer("here", MINIMUM), *generate.settings([option]))


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("gpus_per_node=a100:4", {"gpus_per_node": "a100:4"}),
        ("modules_to_load=python/3.11,gcc/11", {"modules_to_load": ["python/3.11", "gcc/11"]}),
        ("setup=[module use /a b, 'source x, y']", {"setup": ["module use /a b", "source x, y"]}),
        ("sbatch.contiguous=true", {"sbatch": {"contiguous": True}}),
        ("name=17", {"name": "17"}),
        ("env_vars.A=", {"env_vars": {"A": ""}}),
    ],
)
def test_setting_has_the_type_of_its_field(option, values):
    """An option --set is read as what its field takes."""
    (layer,) = generate.settings([option])

    assert layer.values == values


@pytest.mark.parametrize(("script", "name"), [("a/b c.py", "b_c"), ("日本.py", "job")])
def test_name_follows_from_the_program(script, name):
    """A job without a name has one made of that of its program."""
    assert specified(script=script).job_name == name


def test_tasks_and_devices():
    """A node has a task for each process, but one for torchrun; devices are CPUs, or GPUs, or processes of torch."""
    pairs = {"framework": "torchrun", "processes_per_node": 2}
    jobs = [{}, {"processes_per_node": 4, "devices_per_process": 1}, {**GPU, "processes_per_node": 1}]
    jobs += [{**GPU, "framework": "torchrun"}, pairs, {**pairs, "framework": "gloo"}]
    found = [(job.tasks, job.devices) for job in (specified(**values) for values in jobs)]

    assert found == [(1, 16), (4, 8), (1, 8), (1, 8), (1, 4), (2, 4)]


@pytest.mark.parametrize("name", JobSpecification.model_fields)
def test_every_field_says_what_it_is(name):
    """Each field has a description that is a sentence, and an example that is accepted."""
    info = JobSpecification.model_fields[name]
    value = info.examples[0]
    beside = {"gpus_per_node": 4} if name in ("gpu_option", "platform") else {}
    beside |= {"container_image": "$JAX_IMAGE"} if name.startswith("container_") else {}

    assert info.description.endswith(".")
    assert getattr(specified(**{**beside, name: value}), name) == value
