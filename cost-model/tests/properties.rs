//! Properties that must hold for every profile and call, and the text form's round trip and refusals.

use cost_model::{
    CpuFacts, DEFAULT_THRESHOLD_WORK, Fingerprint, GpuFacts, Level, Measurements, Overheads,
    Prediction, Profile, Reason, Route, Sample, Side, Situation, TransferSample, TransferTimes,
    Transfers, WholeCall, decide, predict, threshold_work,
};
use proptest::prelude::*;
use routines::{Gate, Library, Op, Precision, Shape, family, option_letters, routed_in};

fn fingerprint() -> Fingerprint {
    Fingerprint {
        cpu_model: "Some \"CPU\" (R)".to_owned(),
        cpu_threads: 16,
        gpu_name: "Some GPU".to_owned(),
        gpu_uuid: "GPU-0123".to_owned(),
        driver: "13000".to_owned(),
        cpu_library: "OpenBLAS 0.3.29".to_owned(),
        gpu_libraries: vec!["libcublas.so.13 130100".to_owned()],
    }
}

/// The machine of the measurements of 2026-12-01: H200, 16 cores of a Xeon, OpenBLAS 0.3.29.
fn h200() -> Profile {
    let side = |samples: &[(u64, f64)]| {
        let mut side = Side::default();
        side.set(
            Precision::D,
            samples
                .iter()
                .map(|(n, t)| Sample(*n, *n, *n, *t))
                .collect(),
        );
        side
    };
    Profile::new(Measurements {
        fingerprint: fingerprint(),
        cpu_threads: 16,
        transfers: Transfers {
            latency_s: 10e-6,
            in_bytes_per_s: 49e9,
            out_bytes_per_s: 48e9,
            fresh_bytes_per_s: 10e9,
        },
        transfer_times: TransferTimes::default(),
        overheads: Overheads {
            call_s: 100e-6,
            start_s: 0.9,
            overlap: 0.0,
        },
        cpu: side(&[
            (128, 2e-5),
            (1024, 5.8e-3),
            (2048, 44.6e-3),
            (4096, 231e-3),
            (8192, 1.6),
        ]),
        gpu: side(&[
            (1024, 6e-5),
            (2048, 3.1e-4),
            (4096, 2.22e-3),
            (8192, 17.05e-3),
        ]),
    })
    .expect("sound measurements")
}

fn gemm(precision: Precision, m: u64, n: u64, k: u64) -> Shape {
    Shape {
        op: Op::Gemm,
        precision,
        m,
        n,
        k,
        right: false,
        beta_zero: true,
        letters: [0; 4],
    }
}

#[test]
fn the_measured_machine_decides_as_measured() {
    let profile = h200();
    let route = |n| {
        decide(
            &profile,
            &gemm(Precision::D, n, n, n),
            &Situation::default(),
            Level::default(),
        )
        .route
    };
    // 1.6 s against 17 ms of kernel and 33 ms of copies; 20 microseconds against 120 of overhead.
    assert_eq!(route(8192), Route::Gpu);
    assert_eq!(route(2048), Route::Gpu);
    assert_eq!(route(64), Route::Cpu);
    let p = predict(
        &profile,
        &gemm(Precision::D, 8192, 8192, 8192),
        &Situation::default(),
    )
    .expect("gemm has curves");
    // Two operands of 512 MiB up at 49 GB/s, one down at 48 GB/s.
    assert!((p.upload_s - 10e-6 - 2.0 * 8192.0 * 8192.0 * 8.0 / 49e9).abs() < 1e-9);
    assert!((p.download_s - 10e-6 - 8192.0 * 8192.0 * 8.0 / 48e9).abs() < 1e-9);
    assert!((p.compute_s - 17.05e-3).abs() < 1e-9);
    assert!((p.cpu_s - 1.6).abs() < 1e-9);
    assert!((p.gpu_s() - (p.latency_s + p.upload_s + p.compute_s + p.download_s)).abs() < 1e-12);
}

#[test]
fn transfers_within_calls_take_the_place_of_rates() {
    let mut m = h200().measurements().clone();
    // Measured on the H200 machine, 2026-12-01: n = 1024 and 8192 in float64.
    m.transfer_times = TransferTimes {
        to_device: vec![
            TransferSample(16 << 20, 0.9e-3),
            TransferSample(1 << 30, 22.8e-3),
        ],
        from_device: vec![
            TransferSample(8 << 20, 0.55e-3),
            TransferSample(512 << 20, 15.1e-3),
        ],
    };
    m.overheads = Overheads {
        call_s: 1e-6,
        start_s: 0.3,
        overlap: 1.0,
    };
    let profile = Profile::new(m).expect("sound");
    assert_eq!(
        Profile::from_toml(&profile.to_toml()).expect("own text"),
        profile
    );
    let gpu_s = |n| {
        predict(
            &profile,
            &gemm(Precision::D, n, n, n),
            &Situation::default(),
        )
        .expect("gemm")
        .gpu_s()
    };
    // 1.45 and 37.9 ms were measured: the kernel is hidden behind the upload.
    assert!((gpu_s(1024) - 1.45e-3).abs() < 0.02e-3, "{}", gpu_s(1024));
    assert!((gpu_s(8192) - 37.9e-3).abs() < 0.1e-3, "{}", gpu_s(8192));
    let bad = profile
        .to_toml()
        .replace("[16777216, 9e-4]", "[16777216, 0.0]");
    let e = Profile::from_toml(&bad).expect_err("refused");
    assert!(
        e.what.contains("[bytes, seconds]") && e.line.is_some(),
        "{e}"
    );
}

#[test]
fn waiting_is_a_term_with_its_own_reason() {
    let profile = h200();
    let shape = gemm(Precision::D, 4096, 4096, 4096);
    let why = |situation| decide(&profile, &shape, &situation, Level::default()).reason;
    assert_eq!(why(Situation::default()), Reason::GpuFaster);
    assert_eq!(
        why(Situation {
            startup_s: 0.9,
            ..Default::default()
        }),
        Reason::StartupTooLong
    );
    assert_eq!(
        why(Situation {
            queue_s: 0.9,
            ..Default::default()
        }),
        Reason::QueueTooLong
    );
    // One cold call that is long enough goes to the GPU all the same.
    let long = gemm(Precision::D, 16384, 16384, 16384);
    let cold = Situation {
        startup_s: 0.9,
        ..Default::default()
    };
    assert_eq!(
        decide(&profile, &long, &cold, Level::default()).route,
        Route::Gpu
    );
}

/// A call of any level-3 family; m is n where the result is a triangle.
fn level3(op: Op, precision: Precision, right: bool, [m, n, k]: [u64; 3]) -> Shape {
    let triangle = matches!(family(op).gate, Some(Gate::Product(["n", ..])));
    Shape {
        op,
        right,
        m: if triangle { n } else { m },
        ..gemm(precision, m, n, k)
    }
}

#[test]
fn every_routed_family_has_a_model_that_follows_from_the_product() {
    let (profile, s) = (h200(), Situation::default());
    let n = 4096;
    let of = |op, p| predict(&profile, &level3(op, p, false, [n; 3]), &s);
    let product = of(Op::Gemm, Precision::Z).expect("gemm has curves");
    for (f, p, name) in routed_in(Library::Blas) {
        let got = of(f.op, p).unwrap_or_else(|| panic!("{name} has no model"));
        if p != Precision::Z || matches!(f.op, Op::Gemm | Op::Gemm3m) {
            continue;
        }
        // The CPU is credited with exactly its share of the flops, the GPU with less.
        let share = f.flops_per_work(p) / 8.0;
        assert!((got.cpu_s / product.cpu_s - share).abs() < 1e-9, "{name}");
        assert!(got.compute_s > product.compute_s * share, "{name}");
        assert!(got.upload_s + got.download_s < product.upload_s + product.download_s + 1e-12);
    }
    // trsm with 16 right-hand sides: the product of a 4096 x 4096 and a 4096 x 16 matrix, halved.
    let thin = level3(Op::Trsm, Precision::D, false, [n, 16, 1]);
    let same = gemm(Precision::D, n, 16, n);
    let cpu_s = |shape: &Shape| predict(&profile, shape, &s).expect("a model").cpu_s;
    assert!((cpu_s(&thin) / cpu_s(&same) - 0.5).abs() < 1e-12);
}

#[test]
fn a_family_without_curves_stays_on_the_cpu() {
    let shape = Shape {
        op: Op::Gges,
        ..gemm(Precision::D, 9000, 9000, 9000)
    };
    let d = decide(&h200(), &shape, &Situation::default(), Level::MAX);
    assert_eq!((d.route, d.reason), (Route::Cpu, Reason::NoModel));
}

/// A square call of a LAPACK family, with one right-hand side where it solves.
fn lapack(op: Op, precision: Precision, letters: &str, n: u64) -> Shape {
    let solves = matches!(op, Op::Gesv | Op::Posv | Op::Getrs | Op::Potrs | Op::Trtrs);
    Shape {
        op,
        letters: option_letters(letters),
        beta_zero: false,
        ..gemm(precision, n, n, if solves { 1 } else { n })
    }
}

#[test]
fn every_routed_family_of_lapack_has_a_model() {
    let (profile, level) = (h200(), Level::default());
    for (f, p, name) in routed_in(Library::Lapack) {
        let of = |n| {
            decide(
                &profile,
                &lapack(f.op, p, "", n),
                &Situation::default(),
                level,
            )
        };
        assert_ne!(of(4096).reason, Reason::NoModel, "{name}");
        assert_eq!(of(32).route, Route::Cpu, "{name} of 32");
        let gate = threshold_work(&profile, f.op, p, level);
        assert!(gate > 32 * 32 * 32, "{name}: {gate}");
    }
    // What sixteen threads and the device took on the H200 machine: the GPU wins each at n = 4096.
    for (op, letters) in [
        (Op::Potrf, "L"),
        (Op::Getrf, ""),
        (Op::Gesv, ""),
        (Op::Geqrf, ""),
        (Op::Syevd, "VL"),
        (Op::Gesdd, "S"),
        (Op::Geev, "NV"),
    ] {
        let shape = lapack(op, Precision::D, letters, 4096);
        let d = decide(&profile, &shape, &Situation::default(), level);
        assert_eq!(d.route, Route::Gpu, "{op:?}: {:?}", d.prediction);
        let gate = threshold_work(&profile, op, Precision::D, level);
        assert!(gate < 4096 * 4096 * 4096, "{op:?}: {gate}");
    }
    // The device has no left vectors.
    let left = lapack(Op::Geev, Precision::D, "VN", 4096);
    let d = decide(&profile, &left, &Situation::default(), Level::MAX);
    assert_eq!((d.route, d.reason), (Route::Cpu, Reason::NoModel));
    // A solve with the factors at hand moves the matrix for next to no work.
    let solve = lapack(Op::Getrs, Precision::D, "N", 4096);
    let d = decide(&profile, &solve, &Situation::default(), level);
    assert_eq!(d.route, Route::Cpu);
}

#[test]
fn a_routine_of_lapack_that_was_measured_has_its_own_curve_by_job() {
    let mut m = h200().measurements().clone();
    let square = |times: &[(u64, f64)]| {
        times
            .iter()
            .map(|(n, t)| Sample(*n, *n, *n, *t))
            .collect::<Vec<_>>()
    };
    m.cpu
        .set_family("dsyevd V", square(&[(1000, 0.06), (4000, 2.355)]));
    m.gpu
        .set_family("dsyevd V", square(&[(1000, 0.012), (4000, 0.105)]));
    m.gpu.set_family("dpotrf", square(&[(4000, 0.0018)]));
    let profile = Profile::new(m).expect("sound");
    assert_eq!(
        Profile::from_toml(&profile.to_toml()).expect("own text"),
        profile
    );
    let of = |op, p, letters: &str, n| {
        predict(&profile, &lapack(op, p, letters, n), &Situation::default()).expect("a model")
    };
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-6, "{a} is not {b}");
    let vectors = of(Op::Syevd, Precision::D, "VL", 4000);
    near(vectors.cpu_s, 2.355);
    near(vectors.compute_s, 0.105);
    near(of(Op::Potrf, Precision::D, "U", 4000).compute_s, 0.0018);
    // Values alone were not measured: the CPU gets the benefit of the doubt.
    let values = of(Op::Syevd, Precision::D, "NL", 4000);
    near(values.cpu_s, 2.355 / 4.0);
    near(values.compute_s, 0.105);
    // Another precision follows by the products, and below the smallest sample the GPU gets no quicker.
    let complex = of(Op::Syevd, Precision::Z, "VL", 4000);
    assert!(complex.cpu_s > vectors.cpu_s && complex.compute_s > vectors.compute_s);
    let single = of(Op::Syevd, Precision::S, "VL", 4000);
    assert!(single.cpu_s < vectors.cpu_s && single.compute_s == vectors.compute_s);
    near(of(Op::Syevd, Precision::D, "VL", 10).compute_s, 0.012);
    assert_eq!(vectors.overlap_s, 0.0);
    for bad in ["dsyevd", "dpotrf V", "dgges", "dsyevd v"] {
        let mut m = h200().measurements().clone();
        m.gpu.set_family(bad, square(&[(1000, 0.1)]));
        let e = Profile::new(m).expect_err(bad);
        assert!(e.what.contains(bad) && e.what.contains("accepted"), "{e}");
    }
}

#[test]
fn the_gate_lets_no_winner_below_it() {
    let profile = h200();
    let gate = threshold_work(&profile, Op::Gemm, Precision::D, Level::default());
    assert!(gate > 64 * 64 * 64, "{gate}");
    assert!(gate < 1024 * 1024 * 1024, "{gate}");
    let n = (gate as f64).cbrt().floor() as u64;
    let d = decide(
        &profile,
        &gemm(Precision::D, n, n, n),
        &Situation::default(),
        Level::default(),
    );
    assert_eq!(d.route, Route::Cpu);
    // A GPU that is slower than the CPU at everything never gets a call.
    let mut slow = h200().measurements().clone();
    slow.transfers.in_bytes_per_s = 1e3;
    let slow = Profile::new(slow).expect("sound");
    assert_eq!(
        threshold_work(&slow, Op::Gemm, Precision::D, Level::default()),
        u64::MAX
    );
}

#[test]
fn an_estimate_is_usable_without_calibration() {
    let gpu = GpuFacts {
        compute_capability: (9, 0),
        sm_count: 132,
        clock_khz: 1_980_000,
    };
    let transfers = *h200().transfers();
    let profile = Profile::estimate(fingerprint(), &gpu, transfers, &CpuFacts { threads: 16 });
    for precision in Precision::ALL {
        let big = gemm(precision, 8192, 8192, 8192);
        let d = decide(&profile, &big, &Situation::default(), Level::default());
        assert_eq!(d.route, Route::Gpu, "{precision:?}");
        // It must not promise more than the real machine keeps (kernel 17.05 ms in float64).
        assert!(precision != Precision::D || d.prediction.compute_s > 17.05e-3);
        let gate = threshold_work(&profile, Op::Gemm, precision, Level::default());
        assert!(
            (DEFAULT_THRESHOLD_WORK / 64..4096 * 4096 * 4096).contains(&gate),
            "{gate}"
        );
    }
    // A consumer chip has almost no float64.
    let consumer = GpuFacts {
        compute_capability: (8, 9),
        sm_count: 58,
        clock_khz: 2_500_000,
    };
    let profile = Profile::estimate(
        fingerprint(),
        &consumer,
        transfers,
        &CpuFacts { threads: 16 },
    );
    let route = |p| {
        decide(
            &profile,
            &gemm(p, 8192, 8192, 8192),
            &Situation::default(),
            Level::default(),
        )
        .route
    };
    assert_eq!(
        (route(Precision::D), route(Precision::S)),
        (Route::Cpu, Route::Gpu)
    );
}

#[test]
fn a_profile_survives_its_text() {
    let profile = h200();
    let text = profile.to_toml();
    assert_eq!(
        Profile::from_toml(&text).expect("own text"),
        profile,
        "{text}"
    );
    let gpu = GpuFacts {
        compute_capability: (9, 0),
        sm_count: 132,
        clock_khz: 1_980_000,
    };
    let estimate = Profile::estimate(
        fingerprint(),
        &gpu,
        *profile.transfers(),
        &CpuFacts { threads: 7 },
    );
    assert_eq!(
        Profile::from_toml(&estimate.to_toml()).expect("own text"),
        estimate
    );
}

#[test]
fn a_family_that_was_measured_has_its_own_curves() {
    let mut m = h200().measurements().clone();
    m.cpu.set_family("dtrsm", vec![Sample(2048, 2048, 1, 0.05)]);
    m.gpu.set_family("dtrsm", vec![Sample(2048, 2048, 1, 0.02)]);
    let profile = Profile::new(m.clone()).expect("sound");
    let text = profile.to_toml();
    assert_eq!(
        Profile::from_toml(&text).expect("own text"),
        profile,
        "{text}"
    );
    let of = |p| level3(Op::Trsm, p, false, [2048, 2048, 1]);
    let d = predict(&profile, &of(Precision::D), &Situation::default()).expect("a model");
    assert!(
        (d.cpu_s - 0.05).abs() < 1e-9 && (d.compute_s - 0.02).abs() < 1e-9,
        "{d:?}"
    );
    // A precision that was not measured follows by the ratio of its products: 4 for complex.
    let z = predict(&profile, &of(Precision::Z), &Situation::default()).expect("a model");
    assert!((z.compute_s - 0.08).abs() < 1e-9, "{z:?}");
    m.cpu.set_family("dfoo", vec![Sample(8, 8, 8, 1.0)]);
    let e = Profile::new(m).expect_err("no such routine");
    assert!(
        e.what.contains("dfoo") && e.what.contains("accepted"),
        "{e}"
    );
}

#[test]
fn a_foreign_profile_is_recognised() {
    let profile = h200();
    assert!(profile.matches(&fingerprint()));
    let other_gpu = Fingerprint {
        gpu_uuid: "GPU-9".to_owned(),
        ..fingerprint()
    };
    let why = profile.difference(&other_gpu).expect("differs");
    assert!(
        why.contains("gpu_uuid") && why.contains("GPU-9") && why.contains("GPU-0123"),
        "{why}"
    );
    let wheel = Fingerprint {
        cpu_library: "OpenBLAS 0.3.34.0.0  USE64BITINT DYNAMIC_ARCH".to_owned(),
        ..fingerprint()
    };
    assert!(profile.matches(&wheel), "another build of the same library");
    for other in [
        Fingerprint {
            cpu_model: String::new(),
            ..fingerprint()
        },
        Fingerprint {
            cpu_threads: 8,
            ..fingerprint()
        },
        Fingerprint {
            cpu_library: "other".to_owned(),
            ..fingerprint()
        },
        Fingerprint {
            driver: "1".to_owned(),
            ..fingerprint()
        },
        Fingerprint {
            gpu_name: "other".to_owned(),
            ..fingerprint()
        },
        Fingerprint {
            gpu_libraries: vec![],
            ..fingerprint()
        },
    ] {
        assert!(!profile.matches(&other), "{other:?}");
    }
}

#[test]
fn bad_text_is_refused_with_line_and_what_is_accepted() {
    let good = h200().to_toml();
    let line_with = |text: &str, needle: &str| {
        text.lines()
            .position(|l| l.contains(needle))
            .map(|i| i + 1)
            .expect(needle)
    };
    let cases = [
        ("schema = 1", "schema = 99", "schema 99"),
        ("schema = 1", "schema = \"one\"", "schema"),
        ("latency_s = 1e-5", "latency_s = 0.0", "latency_s"),
        ("latency_s = 1e-5", "latency_s = nan", "latency_s"),
        ("latency_s = 1e-5", "latency_s = \"fast\"", "accepted"),
        ("latency_s = 1e-5", "latency_s = ", "accepted"),
        ("latency_s = 1e-5", "speed = 1.0", "speed"),
        ("overlap = 0e0", "overlap = 1.5", "0 to 1"),
        (
            "[1024, 1024, 1024, 5.8e-3]",
            "[1024, 0, 1024, 5.8e-3]",
            "all positive",
        ),
        (
            "[1024, 1024, 1024, 5.8e-3]",
            "[1024, 1024, 1024, -1.0]",
            "all positive",
        ),
        (
            "[1024, 1024, 1024, 5.8e-3]",
            "[1024, 1024, 1024]",
            "accepted",
        ),
        ("cpu_threads = 16", "cpu_threads = -1", "accepted"),
    ];
    for (from, to, says) in cases {
        assert!(good.contains(from), "{from}");
        let bad = good.replacen(from, to, 1);
        let e = Profile::from_toml(&bad).expect_err(to);
        assert!(
            e.what.contains(says) && e.what.contains("accepted"),
            "{to}: {e}"
        );
        let line = e.line.expect("known");
        // Tables are named by their heading, values by their own line.
        assert!(
            line <= line_with(&bad, to) && line + 6 > line_with(&bad, to),
            "{to}: {e}"
        );
    }
    for bad in [
        "",
        "not a profile",
        "\u{0}\u{1}",
        "schema = 1",
        "[fingerprint]\n",
    ] {
        let e = Profile::from_toml(bad).expect_err("refused");
        assert!(e.to_string().contains("accepted"), "{e}");
    }
    let no_cube = good.replace("[1024, 1024, 1024", "[1024, 1024, 1000");
    assert!(Profile::from_toml(&no_cube).is_ok(), "other cubes remain");
}

fn precision() -> impl Strategy<Value = Precision> {
    prop::sample::select(Precision::ALL.to_vec())
}

fn op() -> impl Strategy<Value = Op> {
    let ops: Vec<Op> = Op::ALL
        .iter()
        .copied()
        .filter(|op| family(*op).gate.is_some() && family(*op).library == Library::Blas)
        .collect();
    prop::sample::select(ops)
}

fn noisy_profile() -> impl Strategy<Value = Profile> {
    let sample = (1u64..10_000, 1u64..10_000, 1u64..10_000, 1e-7..1e2f64);
    let samples = prop::collection::vec(sample, 0..12);
    (
        samples.clone(),
        samples,
        1e-7..1e-2f64,
        1e6..1e12f64,
        0.0..=1.0f64,
    )
        .prop_map(|(cpu, gpu, latency_s, rate, overlap)| {
            let side = |samples: Vec<(u64, u64, u64, f64)>| {
                let mut side = Side::default();
                let mut all = vec![Sample(100, 100, 100, 1e-3)];
                for (m, n, k, t) in samples {
                    all.push(Sample(m, m, m, t));
                    all.push(Sample(m, n, k, t));
                }
                side.set(Precision::D, all);
                side
            };
            let mut m = h200().measurements().clone();
            m.cpu = side(cpu);
            m.gpu = side(gpu);
            m.transfers.latency_s = latency_s;
            m.transfers.in_bytes_per_s = rate;
            m.overheads.overlap = overlap;
            Profile::new(m).expect("positive")
        })
}

fn all_finite(p: &Prediction) -> bool {
    [
        p.cpu_s,
        p.gpu_s(),
        p.latency_s,
        p.upload_s,
        p.compute_s,
        p.download_s,
        p.fresh_s,
        p.overlap_s,
    ]
    .iter()
    .all(|t| t.is_finite() && *t >= 0.0)
}

fn lapack_op() -> impl Strategy<Value = Op> {
    let ops: Vec<Op> = Op::ALL
        .iter()
        .copied()
        .filter(|op| family(*op).gate.is_some() && family(*op).library == Library::Lapack)
        .collect();
    prop::sample::select(ops)
}

proptest! {
    #[test]
    fn lapack_is_finite_and_never_quicker_for_more(
        profile in noisy_profile(), op in lapack_op(), p in precision(), job in prop::sample::select(b"NV".to_vec()),
        m in 1u64..1_000_001, n in 1u64..1_000_001, k in 1u64..1_000_001, level in 1i64..=10,
        dn in 0u64..5_000,
    ) {
        let letters = if op == Op::Geev { [b'N', job, 0, 0] } else { [job; 4] };
        let shape = |m, n, k| Shape { op, letters, beta_zero: false, ..gemm(p, m, n, k) };
        let s = Situation::default();
        for (m, n, k) in [(m, n, k), (1_000_000, 1_000_000, 1_000_000)] {
            let prediction = predict(&profile, &shape(m, n, k), &s).expect("a model");
            prop_assert!(all_finite(&prediction), "{:?}", prediction);
        }
        let small = predict(&profile, &shape(n, n, n), &s).expect("a model");
        let big = predict(&profile, &shape(n + dn, n + dn, n + dn), &s).expect("a model");
        prop_assert!(big.cpu_s >= small.cpu_s * (1.0 - 1e-9));
        prop_assert!(big.gpu_s() >= small.gpu_s() * (1.0 - 1e-9));
        let ready = Level::new(level).expect("ok");
        let route = |level| decide(&profile, &shape(m, n, k), &s, level).route;
        prop_assert!(route(ready) == Route::Cpu || route(Level::MAX) == Route::Gpu);
    }

    #[test]
    fn predictions_are_finite_up_to_a_million_and_beyond(
        profile in noisy_profile(), op in op(), p in precision(), right: bool,
        m in 1u64..1_000_001, n in 1u64..1_000_001, k in 1u64..1_000_001, threads in 0u32..300,
    ) {
        let s = Situation { cpu_threads: threads, ..Default::default() };
        for sizes in [[m, n, k], [1_000_000; 3], [i64::MAX as u64; 3]] {
            let shape = level3(op, p, right, sizes);
            let prediction = predict(&profile, &shape, &s).expect("a model");
            prop_assert!(all_finite(&prediction), "{:?}", prediction);
        }
    }

    #[test]
    fn a_bigger_call_never_takes_less(
        profile in noisy_profile(), op in op(), p in precision(), right: bool,
        m in 1u64..100_000, n in 1u64..100_000, k in 1u64..100_000,
        dm in 0u64..5_000, dn in 0u64..5_000, dk in 0u64..5_000,
    ) {
        let s = Situation::default();
        let small = predict(&profile, &level3(op, p, right, [m, n, k]), &s).expect("a model");
        let big = level3(op, p, right, [m + dm, n + dn, k + dk]);
        let big = predict(&profile, &big, &s).expect("a model");
        prop_assert!(big.cpu_s >= small.cpu_s * (1.0 - 1e-9));
        prop_assert!(big.gpu_s() >= small.gpu_s() * (1.0 - 1e-9));
    }

    #[test]
    fn a_readier_level_never_takes_a_call_back(
        profile in noisy_profile(), op in op(), p in precision(), right: bool,
        m in 1u64..20_000, n in 1u64..20_000, k in 1u64..20_000, startup_s in 0.0..3.0f64,
    ) {
        let s = Situation { startup_s, ..Default::default() };
        let mut on_gpu = false;
        for level in 1..=10 {
            let level = Level::new(level).expect("1 to 10");
            let route = decide(&profile, &level3(op, p, right, [m, n, k]), &s, level).route;
            prop_assert!(!on_gpu || route == Route::Gpu);
            on_gpu = route == Route::Gpu;
        }
    }

    #[test]
    fn cubes_below_the_gate_never_win(
        op in op(), p in precision(), right: bool, latency_s in 1e-6..1e-2f64, rate in 1e8..1e11f64, level in 1i64..=10,
        share in 0.0..=1.0f64,
    ) {
        let mut m = h200().measurements().clone();
        m.transfers.latency_s = latency_s;
        m.transfers.in_bytes_per_s = rate;
        m.transfers.out_bytes_per_s = rate;
        let (profile, level) = (Profile::new(m).expect("positive"), Level::new(level).expect("ok"));
        let gate = threshold_work(&profile, op, p, level).min(1_000_000_000_000_000_000);
        let n = ((gate as f64).cbrt() * share) as u64;
        let d = decide(&profile, &level3(op, p, right, [n; 3]), &Situation::default(), level);
        // Between two neighbouring works that the gate looked at, the speed-up can rise by the step
        // of 19 % in work at most, since neither curve is steeper than proportional.
        let speedup = d.prediction.cpu_s / d.prediction.gpu_s();
        prop_assert!(speedup < level.required_speedup() * 1.25, "{} at {}", speedup, n);
    }

    #[test]
    fn any_text_is_refused_or_read_but_never_a_panic(text in "\\PC{0,200}") {
        let _ = Profile::from_toml(&text);
    }

    #[test]
    fn a_cut_profile_is_refused(cut in 0usize..1000) {
        let text = h200().to_toml();
        let cut = cut % (text.len() - 4);
        if text.is_char_boundary(cut) {
            prop_assert!(Profile::from_toml(&text[..cut]).is_err());
        }
    }
}

#[test]
fn small_calls_have_a_fixed_cost_even_where_large_ones_hide_their_kernels() {
    let call =
        |upload_s: f64, kernel_s: f64, download_s: f64, fixed_s: f64, hidden: f64| WholeCall {
            kernel_s,
            upload_s,
            download_s,
            whole_s: fixed_s + upload_s + kernel_s + download_s - hidden * upload_s.min(kernel_s),
        };
    let calls = [
        call(1e-4, 1e-5, 1e-4, 2e-4, 1.0),
        call(2e-4, 1e-4, 1e-4, 2e-4, 1.0),
        call(1e-3, 5e-4, 1e-3, 2e-4, 1.0),
        call(1e-1, 1e-1, 1e-1, 0.0, 1.0),
    ];
    let overheads = Overheads::of(&calls, 0.5);
    assert!((overheads.call_s - 2e-4).abs() < 1e-9, "{overheads:?}");
    assert!((overheads.overlap - 1.0).abs() < 1e-9, "{overheads:?}");
    assert_eq!(overheads.start_s, 0.5);
    let none = Overheads::of(&[], 0.5);
    assert!(none.call_s > 0.0 && none.overlap == 0.0);
}
