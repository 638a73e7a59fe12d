"""zeroconfig from the outside: what it prints of a config, its options, exit codes, and errors with their place."""
import json
import os
import tempfile

from tap import B, Skip, main, run, test

ZEROCONFIG, USERS_FILE = f"{B}/zeroconfig", "tests/zero/files/ds_config_zero2.json"


def config(*args, **kwargs):
    if not os.path.exists(ZEROCONFIG):
        raise Skip("this build has no zeroconfig: it lacks jansson: make deps")
    return run(ZEROCONFIG, *args, **kwargs)


@test
def the_resolved_config_is_json_without_auto():
    done = config("-n", "4", "--micro-batch", "3", "--type", "bf16", "--lr", "2e-5", "--warmup-steps", "10", USERS_FILE)
    assert done.returncode == 0, done
    out = json.loads(done.stdout)
    assert "auto" not in done.stdout and out["train_batch_size"] == 12 and out["bf16"]["enabled"] is True, out
    assert out["optimizer"]["params"]["lr"] == 2e-5 == out["scheduler"]["params"]["warmup_max_lr"], out
    assert out["scheduler"]["params"]["warmup_num_steps"] == 10 and out["steps_per_print"] == 100000, out
    remarks = done.stderr.splitlines()
    assert len(remarks) == 3 and all(r.startswith("zeroconfig: ") for r in remarks), remarks
    assert remarks[0] == "zeroconfig: bfloat16 (line 2): old name of bf16", remarks


@test
def what_it_prints_it_reads_again():
    with tempfile.TemporaryDirectory() as folder:
        for args in (["--type", "f16"], ["--type", "f32", "--beta1", "0.8", "--eps", "1e-7"]):
            first = config("-n", "2", "--micro-batch", "1", *args, "-o", f"{folder}/a.json", USERS_FILE)
            assert first.returncode == 0 and first.stdout == "", first
            again = config("-n", "2", f"{folder}/a.json")
            with open(f"{folder}/a.json") as written:
                assert again.returncode == 0 and again.stdout == written.read(), again
        assert os.listdir(folder) == ["a.json"]


@test
def every_field_of_the_model_has_an_option():
    text = """{"gradient_clipping": "auto", "train_batch_size": "auto", "gradient_accumulation_steps": "auto",
        "zero_optimization": {"reduce_bucket_size": "auto"},
        "optimizer": {"type": "Adam", "params": {"betas": "auto", "eps": "auto", "weight_decay": "auto"}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_min_lr": [0, 1]}}}"""
    done = config("--nranks", "3", "--train-batch", "24", "--accumulation", "4", "--hidden", "10", "--beta2", "0.5", "--eps", "0.25",
                  "--weight-decay", "0.125", "--clip", "7", "--total-steps", "5000", "--groups", "2", "/dev/stdin", input=text)
    assert done.returncode == 0, done
    out = json.loads(done.stdout)
    assert out["train_micro_batch_size_per_gpu"] == 2 and out["gradient_clipping"] == 7, out
    assert out["zero_optimization"]["reduce_bucket_size"] == 1024, out
    assert out["optimizer"] == {"type": "AdamW", "params": {
        "lr": 0.001, "betas": [0.9, 0.5], "eps": 0.25, "weight_decay": 0.125}}, out
    assert out["scheduler"]["params"]["total_num_steps"] == 5000, out
    assert out["scheduler"]["params"]["warmup_min_lr"] == [0, 1], out


@test
def offload_is_out_of_a_device_or_into_files():
    plain = config("-n", "2", "--micro-batch", "1", USERS_FILE)
    assert plain.returncode == 0 and "offload_optimizer.device (line 33): already so" in plain.stderr, plain
    away = config("-n", "2", "--micro-batch", "1", "--device", USERS_FILE)
    assert away.returncode == 0 and "offload" not in away.stderr, away
    assert json.loads(away.stdout)["zero_optimization"]["offload_optimizer"] == {
        "device": "cpu", "buffer_count": 4, "pin_memory": True, "ratio": 1}, away
    text = """{"train_batch_size": 1, "aio": {"queue_depth": 16}, "zero_optimization": {"stage": 3,
        "offload_param": {"device": "nvme", "nvme_path": "/fast"}, "offload_optimizer": {"device": "none"}}}"""
    files = config("/dev/stdin", input=text)
    assert files.returncode == 0 and files.stderr == "", files
    out = json.loads(files.stdout)
    assert out["zero_optimization"]["offload_param"] == {
        "device": "nvme", "nvme_path": "/fast", "buffer_count": 5, "max_in_cpu": 0}, out
    assert out["zero_optimization"]["offload_optimizer"] == {"device": "none"}, out
    assert out["aio"] == {"block_size": 1 << 20, "queue_depth": 16}, out


@test
def a_mistake_in_the_config_is_status_1_with_its_place():
    done = config("/dev/stdin", input='{"train_batch_size": 2,\n "zero_optimization": {"stag": 2}}')
    assert done.returncode == 1 and done.stdout == "", done
    assert done.stderr == ("zeroconfig: /dev/stdin:2:24: zero_optimization.stag is unknown: did you mean "
                           "zero_optimization.stage?\n"), done
    done = config(USERS_FILE)
    assert done.returncode == 1 and ":46:39: train_micro_batch_size_per_gpu is \"auto\", and micro_batch" in done.stderr, done


@test
def other_failures_have_other_statuses():
    done = config("/nowhere/at/all")
    assert done.returncode == 3 and "/nowhere/at/all: opening it: No such file" in done.stderr, done
    done = config("-n", "2", "--micro-batch", "1", "-o", "/nowhere/at/all", USERS_FILE)
    assert done.returncode == 3 and "/nowhere/at/all" in done.stderr and "No such file" in done.stderr, done
    done = config("-n", "2", "--micro-batch", "1", "--beta2", "1.5", "/dev/stdin", input='{"train_batch_size": 2}')
    assert done.returncode == 1 and "beta2 is 1.5, and must be in [0, 1)" in done.stderr and not done.stdout, done
    for args in (["-n", "0", USERS_FILE], ["--lr", "fast", USERS_FILE], ["--lr", "inf", USERS_FILE], ["--type", "f64", USERS_FILE], [], ["--wibble"],
                 [USERS_FILE, USERS_FILE]):
        done = config(*args)
        assert done.returncode == 2 and done.stderr and not done.stdout, done
    done = config("--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: zeroconfig [OPTIONS] FILE"), done
    done = config("--version")
    assert done.returncode == 0 and done.stdout.startswith("zeroconfig (Kolo) "), done


main()
