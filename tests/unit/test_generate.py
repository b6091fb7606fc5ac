"""Job specifications: what is accepted, what is refused and how, and where values come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import jsonschema
import pytest

from srunbook import generate, sites
from srunbook._connections import OTHER_FILES
from srunbook.generate import JobError, JobSpecification, Layer
from srunbook.generate._schema import choices

ROOT = Path(__file__).resolve().parents[2]
MINIMUM = {"nodes": 2, "cpus_per_node": 8, "script": "train.py"}


def specified(**values) -> JobSpecification:
    """Specify a job of two nodes, with other values."""
    return generate.specify(Layer("here", {**MINIMUM, **values})).specification


def refusal(text: str, *more: Layer) -> str:
    """Return what a configuration file is told; nodes, CPUs and program come from elsewhere."""
    with pytest.raises(JobError) as caught:
        generate.specify(Layer("profile", MINIMUM), generate.parse_config(text, "a.yaml"), *more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "nodes", "cpus", "devices"),
    [("debug", 1, 4, 4), ("small", 2, 8, 16), ("medium", 4, 16, 64), ("large", 8, 16, 128), ("production", 8, 32, 256)],
)
def test_profiles(name, nodes, cpus, devices):
    """Each profile has its nodes and CPUs, and as many devices as CPUs."""
    one = generate.specify(Layer("here", {"profile": name, "script": "train.py"})).specification

    assert (one.nodes, one.cpus_per_node, one.devices) == (nodes, cpus, devices)


def test_names_of_profiles_and_sites_are_those_that_are_allowed():
    """The fields profile and cluster allow the profiles and the sites that there are, and the schema names them."""
    known = generate.schema()["properties"]

    assert choices("profile") == list(generate.PROFILES)
    assert choices("cluster") == list(sites.names())
    assert known["profile"]["anyOf"][0]["enum"] == choices("profile")
    assert known["cluster"]["anyOf"][0]["enum"] == choices("cluster")
    assert get_args(JobSpecification.model_fields["framework"].annotation) == ("jax", "torchrun", "lightning", "gloo")


@pytest.mark.parametrize("name", sites.names())
@pytest.mark.parametrize("profile", generate.PROFILES)
@pytest.mark.parametrize("framework", choices("framework"))
def test_sites_and_profiles_fit_each_other(name, profile, framework):
    """Each profile goes with each site and framework; gloo alone refuses sites with GPUs."""
    layer = Layer("here", {"cluster": name, "profile": profile, "framework": framework, "script": "train.py"})
    if framework == "gloo" and sites.read(name).get("platform") == "gpu":
        with pytest.raises(JobError, match="computes on CPUs"):
            generate.specify(layer)
    else:
        assert generate.specify(layer).specification.nodes == generate.PROFILES[profile]["nodes"]


def test_raven_has_its_own_settings():
    """On Raven a job has four A100 of a node, 18 CPUs for each and 500 GB, and waits for faster nodes only if told."""
    layer = Layer("here", {"cluster": "raven", "framework": "lightning", "nodes": 2, "script": "train.py"})
    lines = generate.render(generate.specify(layer).specification).splitlines()
    options = {line.split("  #")[0].rstrip() for line in lines if line.startswith("#SBATCH")}

    assert {
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=4",
        "#SBATCH --cpus-per-task=18",
        "#SBATCH --gres=gpu:a100:4",
        "#SBATCH --mem=500000M",
    } <= options
    assert not any("--constraint" in option for option in options)


def test_fields_of_the_older_guide():
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
env_vars:
  JAX_ENABLE_X64: "1"
  NCCL_SOCKET_IFNAME: "ib0"
modules_to_load:
  - "python/3.11"
  - "gcc/11.2.0"
"""
    job = generate.specify(generate.parse_config(text, "my_cluster.yaml"), Layer("--script", {"script": "my_svgd.py"}))

    assert job.specification.time_limit == "12:00:00"
    assert job.specification.devices == 64
    assert job.origin("env_vars", "NCCL_SOCKET_IFNAME") == "my_cluster.yaml:11"
    assert job.origin("modules_to_load", 1) == "my_cluster.yaml:14"
    assert job.origin("qos") == "default"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("nodes: banana", ["a.yaml:1: nodes is 'banana'", "1 to 10000", "nodes: 4"]),
        ("\n\nnodes: 0", ["a.yaml:3: nodes is 0"]),
        ("nodes: true", ["nodes is True"]),
        ("nodes: 2.0", ["nodes is 2.0"]),
        ('nodes: "2"', ["without quotes"]),
        ("node: 2", ["a.yaml:1: unknown key 'node'", "did you mean nodes?"]),
        ("partition: a\ntime: 01:00:00", ["a.yaml:2", "did you mean time_limit?"]),
        ("mem-per-cpu: 8G", ["did you mean memory_per_cpu?"]),
        ("xyzzy: 1", ["the keys are script, arguments"]),
        ("1: 2", ["unknown key 1"]),
        ("node:\n", ["a.yaml:1: unknown key 'node'"]),
        ("memory_per_cpu: 8GB", ["a.yaml:1: memory_per_cpu is '8GB'", 'memory_per_cpu: "8G"']),
        ("memory_per_cpu: 8", ["memory_per_cpu is 8"]),
        ("memory_per_cpu: 0G", ["memory_per_cpu is '0G'"]),
        ("time_limit: 43200", ["a.yaml:1: time_limit is 43200", "in quotes", "02:00:00"]),
        ("time_limit: 90", ["time_limit is 90", "seconds or minutes"]),
        ("time_limit: 12:60:00", ["time_limit is '12:60:00'"]),
        ("time_limit: '12:00'", ["time_limit is '12:00'"]),
        ("time_limit: 00:00:00", ["time_limit '00:00:00'", "no time at all"]),
        ("platform: tpu", ["platform is 'tpu'", "cpu or gpu"]),
        ("profile: mediun", ["Did you mean medium?"]),
        ("framework: jaxx", ["Did you mean jax?"]),
        ('name: "a\\n#SBATCH --nodes=9"', ["a.yaml:1: name is", "control character"]),
        ('partition: "a\\tb"', ["partition is 'a\\tb'", "control character"]),
        ('arguments: [a, "b\\u2028c"]', ["a.yaml:1: arguments[1] is"]),
        ("arguments: [a, 3]", ["arguments[1] is 3", "in quotes"]),
        ("arguments: --epochs 3", ["arguments is '--epochs 3'"]),
        ('env_vars:\n  A: "1"\n  B: 2', ["a.yaml:3: env_vars.B is 2", "in quotes"]),
        ("env_vars:\n  A B: x", ["a.yaml:2: 'A B' in env_vars is not a name"]),
        ("env_vars:\n  PATH: /x", ["a.yaml:2: the variable PATH", "the shell sets it"]),
        ("env_vars: {SLURM_NTASKS: '3'}", ["SLURM_NTASKS", "Slurm sets it"]),
        ("env_vars: {RANK: '3'}", ["RANK", "for each process"]),
        ("env_vars: {JAX_NUM_CPU_DEVICES: '3'}", ["JAX_NUM_CPU_DEVICES", "see devices_per_process"]),
        ("env_vars: {SRUN_ARGS: '3'}", ["SRUN_ARGS", "the script uses"]),
        ("env_vars: [A]", ["env_vars is ['A']"]),
        ("modules_to_load: gcc", ["modules_to_load is 'gcc'"]),
        ("modules_to_load:\n- gcc\n- a; rm -r x", ["a.yaml:3: modules_to_load[1] is 'a; rm -r x'"]),
        ("coordinator_port: 80", ["coordinator_port is 80", "1024 to 65535"]),
        ("output: logs/svgd.out", ["output is 'logs/svgd.out'", "%j"]),
        ("output: /scratch/logs/%j.out", ["output is"]),
        ("output: ../%j.out", ["output is"]),
        ("signal: USR1", ["signal is 'USR1'", "USR1@120"]),
        ("signal: KILL@60", ["signal is 'KILL@60'"]),
        ("signal: USR1@65536\ntime_limit: 7-00:00:00", ["a.yaml:1: signal is 'USR1@65536'", "1 to 65535", "USR1@120"]),
        ("signal: USR1@0", ["signal is 'USR1@0'", "1 to 65535"]),
        ("signal: USR1@600\ntime_limit: 00:10:00", ["a.yaml:1: signal 'USR1@600' comes before", "600 seconds"]),
        ("output: -%j.out", ["output is '-%j.out'", "begins with", "logs/svgd_%j.out"]),
        ("output: logs/.%j", ["output is 'logs/.%j'"]),
        (f"output: '{'%x' * 4}%j'\nname: {'x' * 64}", ["a.yaml:1: output", "266 letters", "255"]),
        ("processes_per_node: 513\ncpus_per_node: 513", ["processes_per_node is 513", "1 to 512"]),
        (f"partition: {'x' * 257}", ["partition is 'xxx", "256"]),
        (f"constraint: {'x' * 257}", ["constraint is 'xxx", "256"]),
        ("platform: gpu\ngpus_per_node: gpu:4", ["gpus_per_node 'gpu:4' names no type", "a100:4"]),
        ("virtual_environment: /a:b", ["virtual_environment '/a:b' has a colon"]),
        ("virtual_environment: '~/a '", ["virtual_environment is '~/a '", "begins or ends with a space"]),
        ("container_image: 'a.sif\u200b'", ["container_image is 'a.sif\\u200b'", "an invisible character"]),
        ("script: ' '", ["script is ' '", "begins or ends with a space"]),
        ("script: 'a.py '", ["script is 'a.py '"]),
        ("script: '\u00a0a.py'", ["script is '\\xa0a.py'"]),
        ("script: ~/a.py", ["script is '~/a.py'", "is not expanded"]),
        ("n\N{CYRILLIC SMALL LETTER O}des: 2", ["unknown key 'n\\u043edes'", "did you mean nodes?"]),
        ("\N{FULLWIDTH LATIN SMALL LETTER N}odes: 2", ["did you mean nodes?"]),
        ("nodes: 1e3", ["nodes is 1000.0"]),
        ("exclusive: yes", ["exclusive is 'yes'", "true or false"]),
        ("gpus_per_node: 4", ["a.yaml:1: gpus_per_node 4 goes with platform: gpu"]),
        ("gpus_per_node: a100", ["gpus_per_node is 'a100'"]),
        ("platform: gpu", ["a.yaml:1: platform 'gpu' needs GPUs"]),
        ("platform: gpu\ngpus_per_node: 3", ["3 processes on a node", "Take cpus_per_node: 6"]),
        ("platform: gpu\ngpus_per_node: 4\nprocesses_per_node: 8", ["cannot share 4 GPUs evenly"]),
        ("processes_per_node: 3", ["a.yaml:1: processes_per_node 3 makes 3 processes"]),
        ("memory_per_cpu: 1G\nmemory_per_node: 8G", ["a.yaml:2: memory_per_node '8G' cannot go with memory_per_cpu"]),
        ("virtual_environment: ~/a\ncontainer_image: b.sif", ["cannot go with virtual_environment"]),
        ("framework: lightning\nname: bash", ["name 'bash' makes Lightning ignore Slurm"]),
        ("framework: torchrun\ndevices_per_process: 2", ["is only for JAX on CPUs"]),
        ("devices_per_process: 9", ["more than the 8 CPUs"]),
        ("virtual_environment: ~bob/env", ["virtual_environment is '~bob/env'"]),
        ("virtual_environment: $(id)", ["virtual_environment is '$(id)'"]),
        ("script: -x.py", ["script is '-x.py'", "./-x.py"]),
        ("nodes:\n", ["nodes is missing", "--profile"]),
    ],
)
def test_refused(text, parts):
    """A value that is not allowed is refused with its line, what was found, and what is right."""
    message = refusal(text)

    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("nodes: 2\nnodes: 3", "a.yaml:2: "),
        ("- nodes", "a.yaml:1: found a list"),
        ("nodes", "a.yaml:1: found a str"),
        ("nodes: [", "a.yaml:1: "),
        ("nodes: 2\n\tcpus: 3", "a.yaml:2: "),
        ("nodes: 2\n---\nnodes: 3", "a.yaml:2: "),
        ("x: !!python/object:os.system a", "a.yaml:1: "),
        ("base: &b {nodes: 2}\n<<: *b", "a.yaml:2: '<<' is not supported"),
        ("nodes: \x07", "a.yaml:1: not YAML"),
        ("nodes: " + "9" * 5000, "cannot be read as YAML"),
        ("nodes: 0x" + "f" * 5000, "a.yaml:1: cannot be read as YAML"),
        ("x: 2026-99-99", "a.yaml:1: cannot be read as YAML"),
        ("nodes: 2\nx: !!bool x", "a.yaml:2: cannot be read as YAML: 'x' is not a valid bool"),
        ("nodes: 2\nx: !!int x", "a.yaml:2: cannot be read as YAML: 'x' is not a valid int"),
        ("[a, b]: 2", "a.yaml:1: a key is a list"),
        ("env_vars: {[a]: b}", "a.yaml:1: a key is a list"),
        ("env_vars:\n  <<: {A: b}", "a.yaml:2: '<<' is not supported"),
    ],
)
def test_no_configuration(text, part):
    """A text that is not YAML, or not a mapping, is refused with its line."""
    assert part in refusal(text)


def test_all_problems_at_once():
    """All that is wrong in a file is said, in the order of its lines."""
    lines = refusal("nodes: x\nfoo_bar_baz: 1\ntime_limit: y\n").splitlines()

    assert [line.split(": ")[0] for line in lines] == ["a.yaml:1", "a.yaml:2", "a.yaml:3"]


def test_many_problems_are_told_in_few_lines():
    """Of thousands of wrong keys the first 20 are told, and how many are left; a nest of lists is no long text."""
    lines = refusal("".join(f"key{number}: 1\n" for number in range(3000))).splitlines()
    nest = refusal("a: &a [1, 1]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\narguments: [*c, *c]").splitlines()

    assert len(lines) == 21
    assert lines[-1] == "and 2980 more. Fix these first"
    assert max(map(len, nest)) < 600


def test_limits_are_taken():
    """The largest values that are allowed are taken: no limit is one lower than what is said."""
    most = specified(
        nodes=10000,
        cpus_per_node=1024,
        processes_per_node=512,
        memory_per_cpu="999999999T",
        time_limit="999-23:59:59",
        signal="USR1@65535",
        output="x" * 100 + "/" + "x" * 10 + "%j",
        name="x" * 64,
        partition="x" * 256,
    )

    assert (most.signal, most.seconds) == ("USR1@65535", 1000 * 86400 - 1)


@pytest.mark.parametrize(
    ("values", "count", "advice"),
    [
        ({"nodes": 1, "cpus_per_node": 1024}, 0, None),
        ({"nodes": 2, "cpus_per_node": 8}, 128, None),
        ({"nodes": 4, "cpus_per_node": 14}, 812, None),
        ({"nodes": 4, "cpus_per_node": 15}, 930, "--set devices_per_process=5 makes it 110"),
        ({"nodes": 4, "cpus_per_node": 16}, 1056, "--set devices_per_process=8 makes it 272"),
        ({"nodes": 2, "cpus_per_node": 32}, 2048, "--set devices_per_process=16 makes it 512"),
        ({"nodes": 8, "cpus_per_node": 32}, 8384, "--set devices_per_process=8 makes it 560"),
        ({"nodes": 4, "cpus_per_node": 32, "processes_per_node": 2}, 2144, "--set devices_per_process=8 makes it 560"),
        ({"nodes": 4, "cpus_per_node": 16, "devices_per_process": 8}, 272, None),
        ({"nodes": 463, "cpus_per_node": 2}, 2774, "--set devices_per_process=1 makes it 924"),
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


def test_empty_file(tmp_path):
    """An empty file changes nothing."""
    path = tmp_path / "a.yaml"
    path.write_text("# nothing\n", encoding="utf-8")

    assert generate.read_config(path).values == {}


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "No such file"),
        (b"nodes: 2\nname: \xff", "a.yaml:2: byte 0xff is not UTF-8"),
        (b"#" * 2_000_000, "larger"),
    ],
)
def test_file_that_cannot_be_read(tmp_path, content, part):
    """A file that is missing, no text or enormous is refused."""
    path = tmp_path / "a.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(JobError, match=part):
        generate.read_config(path)


def test_windows_file_is_read(tmp_path):
    """A file with a byte order mark and ends of line of another system is read like any other."""
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfnodes: 2\r\npartition: compute\r\n")

    assert generate.read_config(path).values == {"nodes": 2, "partition": "compute"}


def test_later_wins():
    """A cluster wins over a profile, a file over both, an option over the file, whatever the order of the options."""
    job = generate.specify(
        generate.parse_config("cpus_per_node: 36\nenv_vars: {A: a, B: b}", "a.yaml"),
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
    there = generate.specify(Layer("here", {"profile": "small", "cluster": "raven", "script": "a.py"})).specification
    back = generate.specify(
        Layer("here", {"profile": "small", "cluster": "raven", "script": "a.py"}),
        *generate.settings(["memory_per_cpu=2G"]),
    ).specification

    assert (there.memory_per_cpu, there.memory_per_node) == (None, "500000M")
    assert (back.memory_per_cpu, back.memory_per_node) == ("2G", None)


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("nodes", "no '=' in it"),
        ("nodes=banana", "--set nodes=banana: nodes is 'banana'"),
        ("nodes=-1", "nodes is '-1'"),
        ("node=1", "did you mean nodes?"),
        ("exclusive=yes", "exclusive is 'yes'"),
        ("nodes.x=1", "nodes has no parts"),
        ("nodes.=1", "nodes has no parts"),
        ("env_vars=A", "which variable?"),
        ("env_vars.PATH=/x", "the variable PATH cannot be set"),
        ("name=a\nb", "control character"),
        ("=1", "unknown key ''"),
    ],
)
def test_setting_refused(option, part):
    """An option --set that is wrong is refused, and named."""
    with pytest.raises(JobError) as caught:
        generate.specify(Layer("here", MINIMUM), *generate.settings([option]))

    assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("exclusive=false", "exclusive", False),
        ("gpus_per_node=4", "gpus_per_node", 4),
        ("gpus_per_node=a100:4", "gpus_per_node", "a100:4"),
        ("modules_to_load=python/3.11,gcc/11", "modules_to_load", ["python/3.11", "gcc/11"]),
        ("time_limit=90", "time_limit", "90"),
        ("name=17", "name", "17"),
        ("env_vars.A=", "env_vars", {"A": ""}),
    ],
)
def test_setting_has_the_type_of_its_field(option, name, value):
    """An option --set is read as what its field takes."""
    (layer,) = generate.settings([option])

    assert layer.values == {name: value}


@pytest.mark.parametrize(
    ("script", "name"), [("train.py", "train"), ("a/b c.py", "b_c"), ("_.py", "job"), ("日本.py", "job"), ("x", "x")]
)
def test_name_follows_from_the_program(script, name):
    """A job without a name has one made of that of its program."""
    assert specified(script=script).job_name == name


@pytest.mark.parametrize(
    ("values", "tasks", "devices"),
    [
        ({}, 1, 16),
        ({"processes_per_node": 4}, 4, 16),
        ({"processes_per_node": 4, "devices_per_process": 1}, 4, 8),
        ({"platform": "gpu", "gpus_per_node": 4}, 4, 8),
        ({"platform": "gpu", "gpus_per_node": "a100:4", "processes_per_node": 1}, 1, 8),
        ({"platform": "gpu", "gpus_per_node": 4, "framework": "torchrun"}, 1, 8),
        ({"framework": "torchrun", "processes_per_node": 2}, 1, 4),
        ({"framework": "gloo", "processes_per_node": 2}, 2, 4),
    ],
)
def test_tasks_and_devices(values, tasks, devices):
    """A node has a task for each process, but one for torchrun; devices are CPUs, or GPUs, or processes of torch."""
    one = specified(**values)

    assert (one.tasks, one.devices) == (tasks, devices)


def test_schema_accepts_what_is_accepted():
    """The published schema takes the examples, and refuses what the model refuses by itself."""
    schema = generate.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    assert validator.is_valid({"nodes": 4, "gpus_per_node": "a100:4", "env_vars": {"A": "1"}, "time_limit": "01:00:00"})
    for wrong in ({"nodes": "4"}, {"node": 4}, {"time_limit": 43200}, {"name": "a\nb"}, {"env_vars": {"A B": "1"}}):
        assert not validator.is_valid(wrong), wrong


@pytest.mark.parametrize("name", JobSpecification.model_fields)
def test_every_field_says_what_it_is(name):
    """Each field has a description that is a sentence, and an example that is accepted."""
    info = JobSpecification.model_fields[name]
    value = info.examples[0]
    beside = {
        "gpus_per_node": {"platform": "gpu"},
        "platform": {"gpus_per_node": 4},
    }.get(name, {})

    assert info.description.endswith(".")
    assert getattr(specified(**{name: value, **beside}), name) == value
