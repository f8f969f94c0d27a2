"""What the programs of the kit share: results, names of routines, the variables of a program under test, and where
NVBLAS is."""
import glob
import os
import subprocess
import sys
import time

KINDS = ("passed", "failed", "skipped")


class Rows:
    """Named results, printed as they come. With REQUIRE_GPU=1 what is skipped has failed."""

    def __init__(self):
        self.all = []  # (name, one of KINDS)

    def add(self, name, held, detail):
        result = held if isinstance(held, str) else "passed" if held else "failed"
        if result == "skipped" and os.environ.get("REQUIRE_GPU") == "1":
            result = "failed"
        self.all.append((name, result))
        print(f"{result:8} {name}: {detail}", flush=True)

    def count(self, kind):
        return sum(result == kind for _, result in self.all)

    def line(self):
        return ", ".join(f"{self.count(kind)} {kind}" for kind in KINDS)


def routine(family, precision):
    """The routine's name in this precision by the family's real name: ("syevd", "z") is "zheevd"."""
    if precision in "cz":
        for real, other in (("sye", "hee"), ("syg", "heg"), ("or", "un")):
            if family.startswith(real):
                family = other + family[len(real):]
                break
    return precision + family


OURS_AND_OPENBLAS = ("GPU_OFFLOAD", "OPENBLAS_", "OMP_", "NVBLAS", "LD_PRELOAD")


class Place:
    """A prefix's libraries, a scratch folder that serves as home, CPU threads, and folders searched first."""

    def __init__(self, prefix, scratch, threads, first=()):
        self.lib = os.path.join(os.path.abspath(prefix), "lib")
        self.scratch, self.threads, self.first = scratch, threads, list(first)

    def environment(self, **extra):
        """Ours and OpenBLAS's variables cleared, a home of its own, the libraries' path."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(OURS_AND_OPENBLAS)}
        path = self.first + [self.lib] + env.get("LD_LIBRARY_PATH", "").split(":")
        env.update(LD_LIBRARY_PATH=":".join(p for p in path if p), HOME=self.scratch)
        env.update({f"XDG_{kind}_HOME": self.scratch for kind in ("DATA", "CONFIG", "CACHE", "STATE")})
        env.update(OPENBLAS_NUM_THREADS=str(self.threads))
        if self.first:
            # What the kit runs on the simulated CUDA is about results and routes; orders that a fast machine never
            # shows are the Rust tests' business.
            env.setdefault("SIM_CUDA_DELAY", "none")
        env.update({k: str(v) for k, v in extra.items()})
        return env

    def calibrate(self, home, quick=False):
        """The profile of a calibration, kept in `home` as XDG_DATA_HOME; ends this program if there is none."""
        tool = os.path.join(os.path.dirname(self.lib), "bin", "gpu-offload")
        done = subprocess.run([tool, "calibrate"] + ["--quick"] * quick, env=self.environment(XDG_DATA_HOME=home), capture_output=True, text=True, errors="replace")
        if done.returncode:
            sys.exit(f"calibrate: exit status {done.returncode}: {done.stderr[-1000:]}")
        return os.path.join(home, "gpu-offload", "profile.toml")

    def nvblas(self, autopin):
        """The environment that puts the peer in front, or None where it is not. Preloading is NVBLAS's own
        way; ours never does that."""
        library = find_nvblas()
        if not library:
            return None
        config = os.path.join(self.scratch, f"nvblas{autopin}.conf")
        with open(config, "w") as out:
            out.write(f"NVBLAS_LOGFILE {self.scratch}/nvblas.log\nNVBLAS_CPU_BLAS_LIB {self.lib}/libblas.so.3\nNVBLAS_GPU_LIST ALL\n")
            out.write("NVBLAS_AUTOPIN_MEM_ENABLED\n" if autopin else "")
        env = self.environment(GPU_OFFLOAD="off", NVBLAS_CONFIG_FILE=config, LD_PRELOAD=library)
        env["LD_LIBRARY_PATH"] += ":" + os.path.dirname(library)
        return env


NO_GPU = "no NVIDIA device (/dev/nvidiactl)"


def gpu_present():
    return os.path.exists("/dev/nvidiactl")


def machine(threads, simulated=False):
    """What a page of measurements says of this machine, and that they are of one run."""
    try:
        gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    except OSError:
        gpu = "the simulated CUDA" if simulated else "not known"
    with open("/proc/cpuinfo") as lines:
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return {"gpu": gpu, "cpu": cpu, "threads": threads, "date": time.strftime("%Y-%m-%d"), "runs": 1}


def find_library(pattern, first=()):
    """The newest library of CUDA's with such a name: in these folders, the toolkit's, or a Python's packages; else None."""
    folders = list(first) + ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu"]
    folders += [os.path.join(p, "nvidia/*/lib") for p in sys.path if p]
    for folder in folders:
        found = sorted(glob.glob(os.path.join(folder, pattern)))
        if found:
            return found[-1]
    return None


def find_nvblas():
    return find_library("libnvblas.so.[0-9]*")
