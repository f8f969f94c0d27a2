//! The machine profile: what was measured, for which machine, and its text form.
//!
//! The text is TOML that a person can read and edit; a value that makes no sense is refused with its
//! line and what is accepted. Reading and writing files is somebody else's business.

use crate::curve::{Below, Curve, GemmCurves};
use crate::lapack::{Key, LapackCurves, SideOf};
use crate::predict::share_of_product;
use core::fmt::Write;
use routines::{Op, Precision, Shape, families};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Version of the text's layout; another one is refused.
pub const SCHEMA: u32 = 1;

/// The machine that a profile belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// CPU model as the kernel names it.
    pub cpu_model: String,
    /// Logical CPUs of the machine.
    pub cpu_threads: u32,
    /// GPU name; empty where there was none.
    pub gpu_name: String,
    /// GPU UUID; empty where there was none.
    pub gpu_uuid: String,
    /// Driver version; empty where there was none.
    pub driver: String,
    /// Configuration string of the CPU library.
    pub cpu_library: String,
    /// GPU libraries with their versions.
    pub gpu_libraries: Vec<String>,
}

impl Fingerprint {
    /// The first difference that concerns the CPU, as "what: profile's, this machine's". Another version or build
    /// of the same library is none: a Python wheel brings an OpenBLAS of its own, whose times are near.
    pub fn cpu_difference(&self, here: &Fingerprint) -> Option<String> {
        difference("cpu_model", &self.cpu_model, &here.cpu_model)
            .or_else(|| {
                difference(
                    "cpu_threads",
                    &self.cpu_threads.to_string(),
                    &here.cpu_threads.to_string(),
                )
            })
            .or_else(|| {
                let same = library_name(&self.cpu_library) == library_name(&here.cpu_library);
                difference("cpu_library", &self.cpu_library, &here.cpu_library).filter(|_| !same)
            })
    }

    /// The first difference that concerns the GPU.
    pub fn gpu_difference(&self, here: &Fingerprint) -> Option<String> {
        difference("gpu_name", &self.gpu_name, &here.gpu_name)
            .or_else(|| difference("gpu_uuid", &self.gpu_uuid, &here.gpu_uuid))
            .or_else(|| difference("driver", &self.driver, &here.driver))
            .or_else(|| {
                difference(
                    "gpu_libraries",
                    &self.gpu_libraries.join(", "),
                    &here.gpu_libraries.join(", "),
                )
            })
    }
}

/// "OpenBLAS" of "OpenBLAS 0.3.29 DYNAMIC_ARCH …".
fn library_name(config: &str) -> Option<&str> {
    config.split_whitespace().next()
}

fn difference(what: &str, profile: &str, here: &str) -> Option<String> {
    (profile != here).then(|| format!("{what} is {profile:?} in the profile, {here:?} here"))
}

/// Moving data, through the path that calls take.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfers {
    /// Fixed time of one transfer.
    pub latency_s: f64,
    /// Rate to the device.
    pub in_bytes_per_s: f64,
    /// Rate from the device into memory that was touched before.
    pub out_bytes_per_s: f64,
    /// Rate at which fresh result pages are faulted in.
    pub fresh_bytes_per_s: f64,
}

/// One transfer as calls take it: bytes, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct TransferSample(pub u64, pub f64);

/// Times of moving data within whole calls, by size: rates alone say too little where threads have to
/// wake for a few megabytes. Where it is empty, the rates serve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransferTimes {
    /// Operands to the device.
    pub to_device: Vec<TransferSample>,
    /// Result from the device.
    pub from_device: Vec<TransferSample>,
}

/// Fixed costs, and how well transfers and kernels hide each other.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overheads {
    /// Fixed time of one offloaded call besides its transfers' latency.
    pub call_s: f64,
    /// Time until the GPU is ready in a new process.
    pub start_s: f64,
    /// Share, 0 to 1, of the shorter of upload and kernels that is hidden behind the longer.
    pub overlap: f64,
}

/// One whole call on the device, in seconds: its kernels alone, its transfers within it, and all of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WholeCall {
    /// Kernels alone.
    pub kernel_s: f64,
    /// Operands to the device.
    pub upload_s: f64,
    /// Result from the device.
    pub download_s: f64,
    /// The call.
    pub whole_s: f64,
}

impl WholeCall {
    fn beside_s(&self) -> f64 {
        self.whole_s - self.upload_s - self.download_s
    }

    fn shorter_s(&self) -> f64 {
        self.kernel_s.min(self.upload_s)
    }
}

impl Overheads {
    /// From whole calls, small ones first, and the time of a start.
    pub fn of(calls: &[WholeCall], start_s: f64) -> Self {
        // Kernels that are not hidden show beside the transfers; the largest call tells best.
        let overlap = calls.last().map_or(0.0, |largest| {
            (1.0 - largest.beside_s() / largest.shorter_s()).clamp(0.0, 1.0)
        });
        // What the others take besides: where the largest hides its kernels, small ones do not, so that the least of
        // all sizes would say that a call costs nothing.
        let others = &calls[..calls.len().saturating_sub(1)];
        let mut rests: Vec<f64> = others
            .iter()
            .map(|call| call.beside_s() - call.kernel_s + overlap * call.shorter_s())
            .collect();
        rests.sort_by(f64::total_cmp);
        // Positive by definition; a microsecond where the transfers' times hold all of it.
        let call_s = rests.get(rests.len() / 2).map_or(1e-6, |s| s.max(1e-6));
        Self {
            call_s,
            start_s,
            overlap,
        }
    }
}

/// One measurement: m, n, k, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Sample(pub u64, pub u64, pub u64, pub f64);

/// The measurements of one side, by precision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    samples: [Vec<Sample>; 4],
    /// Other families, by routine ("dsyrk") or, in LAPACK, by routine and the letters of its job options ("dpotrf",
    /// "dsyevd V", "dgeev NV"); m, n, k are those of the call, k being nrhs or n where a routine has neither.
    families: BTreeMap<String, Vec<Sample>>,
}

/// The family and precision of a routine's name; `None` for a name that the table lacks.
pub(crate) fn routine(name: &str) -> Option<(Op, Precision)> {
    families().find_map(|f| {
        let mut routines = f.routines();
        Some((f.op, routines.find(|(_, n)| n == name)?.0))
    })
}

/// Place of a routine among all.
pub(crate) fn slot(op: Op, precision: Precision) -> usize {
    op as usize * 4 + index(precision)
}

/// Places of all routines; codes of families are below 64.
pub(crate) const SLOTS: usize = 64 * 4;

/// Multiply-adds of a sample of a family, as thresholds count them.
fn work(op: Op, precision: Precision, s: &Sample) -> f64 {
    let shape = Shape {
        op,
        precision,
        m: s.0,
        n: s.1,
        k: s.2,
        right: false,
        beta_zero: true,
        letters: [0; 4],
    };
    shape.product().map(|size| size as f64).iter().product()
}

/// Place of a precision among the four.
pub(crate) fn index(precision: Precision) -> usize {
    match precision {
        Precision::S => 0,
        Precision::D => 1,
        Precision::C => 2,
        Precision::Z => 3,
    }
}

impl Side {
    /// Replaces the samples of one precision.
    pub fn set(&mut self, precision: Precision, samples: Vec<Sample>) {
        self.samples[index(precision)] = samples;
    }

    /// The samples of one precision.
    pub fn get(&self, precision: Precision) -> &[Sample] {
        &self.samples[index(precision)]
    }

    /// Replaces the samples of another family's routine ("dsyrk"). A name that the table lacks is refused
    /// by [`Profile::new`].
    pub fn set_family(&mut self, routine: &str, samples: Vec<Sample>) {
        self.families.insert(routine.to_owned(), samples);
    }

    /// The samples of the other families, by routine.
    pub fn families(&self) -> impl Iterator<Item = (&str, &[Sample])> {
        self.families
            .iter()
            .map(|(name, samples)| (name.as_str(), samples.as_slice()))
    }

    /// Curves of the other families by [`slot`]; a precision that was not measured takes the curve of
    /// another one, by the ratio of its products.
    fn family_curves(&self, gemm: &[GemmCurves; 4], below: Below) -> Vec<Option<GemmCurves>> {
        let mut curves: Vec<Option<GemmCurves>> = vec![None; SLOTS];
        let measured: Vec<_> = self
            .families
            .iter()
            .filter_map(|(name, samples)| Some((routine(name)?, samples)))
            .collect();
        for &((op, precision), samples) in &measured {
            for to in Precision::ALL {
                let own = to == precision;
                let place = slot(op, to);
                let closer = to.real() == precision.real();
                if !own && curves[place].is_some() && !closer {
                    continue;
                }
                if !own && measured.iter().any(|((o, p), _)| (*o, *p) == (op, to)) {
                    continue;
                }
                let (from, to) = (&gemm[index(precision)], &gemm[index(to)]);
                let cubes = samples.iter().map(|s| {
                    let [m, n, k] = [s.0, s.1, s.2].map(|size| size as f64);
                    let ratio = to.time_s(m, n, k) / from.time_s(m, n, k);
                    (work(op, precision, s), s.3 * ratio)
                });
                if let Some(share) = share_of_product(op) {
                    curves[place] = to.of_family(cubes.collect(), share, below);
                }
            }
        }
        curves
    }

    /// True without any sample.
    pub fn is_empty(&self) -> bool {
        self.samples.iter().all(Vec::is_empty)
    }

    /// Curves of the four precisions; one without a cube is derived from the next best one.
    fn curves(&self, below: Below) -> Option<[GemmCurves; 4]> {
        let own = |p: Precision| {
            let samples: Vec<_> = self
                .get(p)
                .iter()
                .map(|s| (s.0 as f64, s.1 as f64, s.2 as f64, s.3))
                .collect();
            GemmCurves::new(&samples, below)
        };
        // A float64 operation counts as two float32 ones, a complex multiply-add as four real ones.
        let weight = |p: Precision| match p {
            Precision::S => 1.0,
            Precision::D => 2.0,
            Precision::C => 4.0,
            Precision::Z => 8.0,
        };
        let sources = |p: Precision| match p {
            Precision::S => [Precision::S, Precision::C, Precision::D, Precision::Z],
            Precision::D => [Precision::D, Precision::Z, Precision::S, Precision::C],
            Precision::C => [Precision::C, Precision::S, Precision::Z, Precision::D],
            Precision::Z => [Precision::Z, Precision::D, Precision::C, Precision::S],
        };
        let curves = |p: Precision| {
            sources(p)
                .into_iter()
                .find_map(|source| Some(own(source)?.scaled(weight(p) / weight(source))))
        };
        let [s, d, c, z] = Precision::ALL.map(curves);
        let (s, d) = (s?, d?);
        // Calibrations time thin products of real numbers.
        let (c, z) = (c?.with_thin_of(&s, 2.0), z?.with_thin_of(&d, 2.0));
        Some([s, d, c, z])
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurements {
    /// The machine.
    pub fingerprint: Fingerprint,
    /// Threads the CPU library used while it was measured.
    pub cpu_threads: u32,
    /// Moving data.
    pub transfers: Transfers,
    /// Moving data, by size.
    pub transfer_times: TransferTimes,
    /// Fixed costs.
    pub overheads: Overheads,
    /// Matrix products on the CPU.
    pub cpu: Side,
    /// Kernels alone on the GPU.
    pub gpu: Side,
}

/// A machine profile, ready for predictions.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    measurements: Measurements,
    upload: Option<Curve>,
    download: Option<Curve>,
    cpu: [GemmCurves; 4],
    gpu: [GemmCurves; 4],
    /// Other families that were measured, by [`slot`].
    cpu_families: Vec<Option<GemmCurves>>,
    gpu_families: Vec<Option<GemmCurves>>,
    cpu_lapack: LapackCurves,
    gpu_lapack: LapackCurves,
}

/// Why a profile is refused: what, on which line, and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// Line of the text, counted from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong and what is accepted.
    pub what: String,
}

impl core::fmt::Display for ProfileError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for ProfileError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    schema: toml::Spanned<i64>,
    fingerprint: Fingerprint,
    transfers: toml::Spanned<Transfers>,
    #[serde(default)]
    transfer_times: TextTransferTimes,
    overheads: toml::Spanned<Overheads>,
    cpu: TextCpu,
    gpu: TextGpu,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TextTransferTimes {
    to_device: Vec<toml::Spanned<TransferSample>>,
    from_device: Vec<toml::Spanned<TransferSample>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextCpu {
    threads: u32,
    gemm: toml::Spanned<TextGemm>,
    #[serde(default)]
    families: BTreeMap<String, Vec<toml::Spanned<Sample>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextGpu {
    gemm: toml::Spanned<TextGemm>,
    #[serde(default)]
    families: BTreeMap<String, Vec<toml::Spanned<Sample>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextGemm {
    #[serde(default)]
    s: Vec<toml::Spanned<Sample>>,
    #[serde(default)]
    d: Vec<toml::Spanned<Sample>>,
    #[serde(default)]
    c: Vec<toml::Spanned<Sample>>,
    #[serde(default)]
    z: Vec<toml::Spanned<Sample>>,
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(offset)
        .filter(|b| **b == b'\n')
        .count()
        + 1
}

fn positive(value: f64) -> bool {
    value > 0.0 && value.is_finite()
}

impl Profile {
    /// A profile from measurements.
    ///
    /// # Errors
    /// For values that are not positive and finite, and for a side without a single cube.
    pub fn new(measurements: Measurements) -> Result<Self, ProfileError> {
        let refuse = |what: String| Err(ProfileError { line: None, what });
        if let Some(what) = wrong_transfers(&measurements.transfers) {
            return refuse(what);
        }
        if let Some(what) = wrong_overheads(&measurements.overheads) {
            return refuse(what);
        }
        let times = &measurements.transfer_times;
        for sample in times.to_device.iter().chain(&times.from_device) {
            if let Some(what) = wrong_transfer(sample) {
                return refuse(what);
            }
        }
        for (name, side) in [("cpu", &measurements.cpu), ("gpu", &measurements.gpu)] {
            for precision in Precision::ALL {
                for sample in side.get(precision) {
                    if let Some(what) = wrong_sample(sample) {
                        return refuse(format!("{name}.gemm.{}: {what}", precision.letter()));
                    }
                }
            }
            if side.curves(Below::Constant).is_none() {
                return refuse(no_cube(name));
            }
            for (routine, samples) in side.families() {
                let wrong =
                    wrong_routine(routine).or_else(|| samples.iter().find_map(wrong_sample));
                if let Some(what) = wrong {
                    return refuse(format!("{name}.families.{routine}: {what}"));
                }
            }
        }
        Ok(Self::build(measurements))
    }

    /// For measurements that are known to be sound.
    ///
    /// # Panics
    /// If a side has no cube; callers in this crate supply one.
    pub(crate) fn build(measurements: Measurements) -> Self {
        let curve = |samples: &[TransferSample]| {
            Curve::new(
                samples.iter().map(|s| (s.0 as f64, s.1)).collect(),
                Below::Constant,
            )
        };
        let upload = curve(&measurements.transfer_times.to_device);
        let download = curve(&measurements.transfer_times.from_device);
        let cpu = measurements
            .cpu
            .curves(Below::Proportional)
            .expect("checked: a CPU cube");
        let gpu = measurements
            .gpu
            .curves(Below::Constant)
            .expect("checked: a GPU cube");
        let cpu_families = measurements.cpu.family_curves(&cpu, Below::Proportional);
        let gpu_families = measurements.gpu.family_curves(&gpu, Below::Constant);
        let cpu_lapack = LapackCurves::new(measurements.cpu.families(), &cpu, SideOf::Cpu);
        let gpu_lapack = LapackCurves::new(measurements.gpu.families(), &gpu, SideOf::Gpu);
        Self {
            measurements,
            upload,
            download,
            cpu,
            gpu,
            cpu_families,
            gpu_families,
            cpu_lapack,
            gpu_lapack,
        }
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// For text that is not TOML, another schema, unknown or missing fields and values that make no
    /// sense.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        let at = |span: core::ops::Range<usize>, what: String| ProfileError {
            line: Some(line_of(text, span.start)),
            what,
        };
        // The schema first: another version may have other fields, and that is the clearer message.
        #[derive(Deserialize)]
        struct Head {
            schema: Option<toml::Spanned<toml::Value>>,
        }
        let broken = |e: toml::de::Error| ProfileError {
            line: e.span().map(|s| line_of(text, s.start)),
            what: format!(
                "{}; accepted: a profile written by `gpu-offload calibrate`",
                e.message()
            ),
        };
        let head: Head = toml::from_str(text).map_err(broken)?;
        match head.schema {
            Some(s) if s.get_ref().as_integer() == Some(i64::from(SCHEMA)) => {}
            Some(s) => {
                let what = format!("schema {} is not known; accepted: {SCHEMA}", s.get_ref());
                return Err(at(s.span(), what));
            }
            None => {
                let what = format!("no schema is given; accepted: schema = {SCHEMA}");
                return Err(ProfileError { line: None, what });
            }
        }
        let parsed: Text = toml::from_str(text).map_err(broken)?;
        debug_assert_eq!(*parsed.schema.get_ref(), i64::from(SCHEMA));
        if let Some(what) = wrong_transfers(parsed.transfers.get_ref()) {
            return Err(at(parsed.transfers.span(), what));
        }
        if let Some(what) = wrong_overheads(parsed.overheads.get_ref()) {
            return Err(at(parsed.overheads.span(), what));
        }
        let times = |samples: Vec<toml::Spanned<TransferSample>>| {
            for sample in &samples {
                if let Some(what) = wrong_transfer(sample.get_ref()) {
                    return Err(at(sample.span(), what));
                }
            }
            Ok(samples.into_iter().map(toml::Spanned::into_inner).collect())
        };
        let transfer_times = TransferTimes {
            to_device: times(parsed.transfer_times.to_device)?,
            from_device: times(parsed.transfer_times.from_device)?,
        };
        let side = |name: &str,
                    gemm: toml::Spanned<TextGemm>,
                    families: BTreeMap<String, Vec<toml::Spanned<Sample>>>|
         -> Result<Side, ProfileError> {
            let span = gemm.span();
            let gemm = gemm.into_inner();
            let mut side = Side::default();
            for (precision, samples) in [
                (Precision::S, gemm.s),
                (Precision::D, gemm.d),
                (Precision::C, gemm.c),
                (Precision::Z, gemm.z),
            ] {
                for sample in &samples {
                    if let Some(what) = wrong_sample(sample.get_ref()) {
                        return Err(at(sample.span(), what));
                    }
                }
                let samples = samples.into_iter().map(toml::Spanned::into_inner).collect();
                side.set(precision, samples);
            }
            for (routine, samples) in families {
                for sample in &samples {
                    let wrong = wrong_routine(&routine).or_else(|| wrong_sample(sample.get_ref()));
                    if let Some(what) = wrong {
                        return Err(at(sample.span(), what));
                    }
                }
                let samples = samples.into_iter().map(toml::Spanned::into_inner).collect();
                side.set_family(&routine, samples);
            }
            match side.curves(Below::Constant) {
                Some(_) => Ok(side),
                None => Err(at(span, no_cube(name))),
            }
        };
        Ok(Self::build(Measurements {
            fingerprint: parsed.fingerprint,
            cpu_threads: parsed.cpu.threads,
            transfers: parsed.transfers.into_inner(),
            transfer_times,
            overheads: parsed.overheads.into_inner(),
            cpu: side("cpu", parsed.cpu.gemm, parsed.cpu.families)?,
            gpu: side("gpu", parsed.gpu.gemm, parsed.gpu.families)?,
        }))
    }

    /// The text form; [`Profile::from_toml`] reads it back to an equal profile.
    pub fn to_toml(&self) -> String {
        let m = &self.measurements;
        let f = &m.fingerprint;
        let quoted = |s: &str| toml::Value::String(s.to_owned()).to_string();
        let libraries: Vec<String> = f.gpu_libraries.iter().map(|l| quoted(l)).collect();
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        line("# Machine profile of gpu-offload, written by `gpu-offload calibrate`.".to_owned());
        line(
            "# Times in seconds, rates in bytes per second; a sample is [m, n, k, seconds]."
                .to_owned(),
        );
        line(format!("schema = {SCHEMA}\n"));
        line("[fingerprint]".to_owned());
        line(format!("cpu_model = {}", quoted(&f.cpu_model)));
        line(format!("cpu_threads = {}", f.cpu_threads));
        line(format!("cpu_library = {}", quoted(&f.cpu_library)));
        line(format!("gpu_name = {}", quoted(&f.gpu_name)));
        line(format!("gpu_uuid = {}", quoted(&f.gpu_uuid)));
        line(format!("driver = {}", quoted(&f.driver)));
        line(format!("gpu_libraries = [{}]\n", libraries.join(", ")));
        let t = &m.transfers;
        line("[transfers]".to_owned());
        line(format!("latency_s = {:e}", t.latency_s));
        line(format!("in_bytes_per_s = {:e}", t.in_bytes_per_s));
        line(format!("out_bytes_per_s = {:e}", t.out_bytes_per_s));
        line(format!("fresh_bytes_per_s = {:e}\n", t.fresh_bytes_per_s));
        let times = &m.transfer_times;
        if *times != TransferTimes::default() {
            line("# Within whole calls; a sample is [bytes, seconds].".to_owned());
            line("[transfer_times]".to_owned());
            for (name, samples) in [
                ("to_device", &times.to_device),
                ("from_device", &times.from_device),
            ] {
                let mut text = format!("{name} = [\n");
                for TransferSample(bytes, time_s) in samples {
                    // Writing to a String cannot fail.
                    let _ = writeln!(text, "    [{bytes}, {time_s:e}],");
                }
                text.push(']');
                line(text);
            }
            line(String::new());
        }
        let o = &m.overheads;
        line("[overheads]".to_owned());
        line(format!("call_s = {:e}", o.call_s));
        line(format!("start_s = {:e}", o.start_s));
        line(format!("overlap = {:e}\n", o.overlap));
        line(format!("[cpu]\nthreads = {}\n", m.cpu_threads));
        for (name, side) in [("cpu", &m.cpu), ("gpu", &m.gpu)] {
            line(format!("[{name}.gemm]"));
            for precision in Precision::ALL {
                let samples = side.get(precision);
                if samples.is_empty() {
                    continue;
                }
                let mut text = format!("{} = [\n", precision.letter());
                for Sample(m, n, k, time_s) in samples {
                    // Writing to a String cannot fail.
                    let _ = writeln!(text, "    [{m}, {n}, {k}, {time_s:e}],");
                }
                text.push(']');
                line(text);
            }
            line(String::new());
            if side.families.is_empty() {
                continue;
            }
            line(format!("[{name}.families]"));
            for (routine, samples) in side.families() {
                let samples: Vec<String> = samples
                    .iter()
                    .map(|Sample(m, n, k, time_s)| format!("[{m}, {n}, {k}, {time_s:e}]"))
                    .collect();
                // A key with a space needs quotes.
                let key = match routine.contains(' ') {
                    true => quoted(routine),
                    false => routine.to_owned(),
                };
                line(format!("{key} = [{}]", samples.join(", ")));
            }
            line(String::new());
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }

    /// The first difference between the profile's machine and this one; `None` if it is the same.
    pub fn difference(&self, here: &Fingerprint) -> Option<String> {
        let f = &self.measurements.fingerprint;
        f.cpu_difference(here).or_else(|| f.gpu_difference(here))
    }

    /// True if the profile was made for this machine.
    pub fn matches(&self, here: &Fingerprint) -> bool {
        self.difference(here).is_none()
    }

    /// What the profile was made from.
    pub fn measurements(&self) -> &Measurements {
        &self.measurements
    }

    /// Moving data.
    pub fn transfers(&self) -> &Transfers {
        &self.measurements.transfers
    }

    /// Fixed costs.
    pub fn overheads(&self) -> &Overheads {
        &self.measurements.overheads
    }

    /// Time of moving so many bytes to the device and so many back.
    pub(crate) fn transfer_s(&self, in_bytes: f64, out_bytes: f64) -> (f64, f64) {
        let t = self.transfers();
        let time_s = |curve: &Option<Curve>, bytes: f64, rate: f64| match curve {
            Some(curve) => curve.time_s(bytes),
            None if bytes > 0.0 => t.latency_s + bytes / rate,
            None => 0.0,
        };
        (
            time_s(&self.upload, in_bytes, t.in_bytes_per_s),
            time_s(&self.download, out_bytes, t.out_bytes_per_s),
        )
    }

    /// Threads the CPU library used while it was measured.
    pub fn cpu_threads(&self) -> u32 {
        self.measurements.cpu_threads
    }

    pub(crate) fn cpu_curves(&self, precision: Precision) -> &GemmCurves {
        &self.cpu[index(precision)]
    }

    /// The curves of a family other than gemm, where it was measured: CPU and GPU.
    pub(crate) fn family_curves(
        &self,
        op: Op,
        precision: Precision,
    ) -> (Option<&GemmCurves>, Option<&GemmCurves>) {
        let place = slot(op, precision);
        (
            self.cpu_families[place].as_ref(),
            self.gpu_families[place].as_ref(),
        )
    }

    pub(crate) fn gpu_curves(&self, precision: Precision) -> &GemmCurves {
        &self.gpu[index(precision)]
    }

    /// Times of a call of LAPACK without copies: CPU and GPU. `None` for a family that nothing predicts.
    pub(crate) fn lapack_s(&self, shape: &Shape) -> Option<(f64, f64)> {
        let cpu_s = self
            .cpu_lapack
            .time_s(shape, self.cpu_curves(shape.precision))?;
        let gpu_s = self
            .gpu_lapack
            .time_s(shape, self.gpu_curves(shape.precision))?;
        Some((cpu_s, gpu_s))
    }
}

fn wrong_routine(name: &str) -> Option<String> {
    let level3 = routine(name).is_some_and(|(op, _)| share_of_product(op).is_some());
    (!level3 && Key::of(name).is_none()).then(|| {
        format!(
            "routine {name:?} is not known; accepted: a level-3 routine such as \"dsyrk\", or one of LAPACK with \
             the letters of its job options, such as \"dpotrf\" or \"dsyevd V\""
        )
    })
}

fn wrong_transfers(t: &Transfers) -> Option<String> {
    [
        ("latency_s", t.latency_s),
        ("in_bytes_per_s", t.in_bytes_per_s),
        ("out_bytes_per_s", t.out_bytes_per_s),
        ("fresh_bytes_per_s", t.fresh_bytes_per_s),
    ]
    .into_iter()
    .find(|(_, v)| !positive(*v))
    .map(|(name, v)| format!("transfers.{name} = {v}; accepted: a positive number"))
}

fn wrong_overheads(o: &Overheads) -> Option<String> {
    [("call_s", o.call_s), ("start_s", o.start_s)]
        .into_iter()
        .find(|(_, v)| !positive(*v))
        .map(|(name, v)| format!("overheads.{name} = {v}; accepted: a positive number"))
        .or_else(|| {
            (!(0.0..=1.0).contains(&o.overlap))
                .then(|| format!("overheads.overlap = {}; accepted: 0 to 1", o.overlap))
        })
}

fn wrong_transfer(s: &TransferSample) -> Option<String> {
    (s.0 == 0 || !positive(s.1)).then(|| {
        format!(
            "sample [{}, {}]; accepted: [bytes, seconds], both positive",
            s.0, s.1
        )
    })
}

fn wrong_sample(s: &Sample) -> Option<String> {
    (s.0 == 0 || s.1 == 0 || s.2 == 0 || !positive(s.3)).then(|| {
        format!(
            "sample [{}, {}, {}, {}]; accepted: [m, n, k, seconds], all positive",
            s.0, s.1, s.2, s.3
        )
    })
}

fn no_cube(side: &str) -> String {
    format!("{side}.gemm has no sample with m = n = k; accepted: at least one in s, d, c or z")
}
