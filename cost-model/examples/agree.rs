//! How often calibrations of one machine decide alike: `cargo run --release -p cost-model --example agree PROFILE PROFILE…`.
//!
//! Over random calls of every routed routine, none of which is made: log-uniform sizes, letters at random. Prints a
//! row a family and the total, with what the differing decisions cost: the predicted time that the others' decision
//! adds by the first profile. Ends with status 1 where fewer than [`PROMISED`] of all calls are decided alike.

use cost_model::{Level, Profile, Route, Situation, decide};
use routines::{Dims, Library, Options, Shape, routed};
use std::collections::BTreeMap;
use std::process::ExitCode;

const CALLS: usize = 5000;
const SIZES: [f64; 2] = [16.0, 8000.0];
const PROMISED: f64 = 0.97;

/// From 0 to 1 (splitmix64), the same numbers for ever.
struct Random(u64);

impl Random {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn size(&mut self) -> u64 {
        let [low, high] = SIZES.map(f64::ln);
        (low + (high - low) * self.share()).exp() as u64
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get((self.share() * all.len() as f64) as usize).copied()
    }
}

/// A family's calls.
#[derive(Default)]
struct Tally {
    calls: usize,
    alike: usize,
    /// By the first profile: the better side of each call, and what other decisions add to it.
    better_s: f64,
    added_s: f64,
}

impl Tally {
    fn add(&mut self, routes: &[Route], sides_s: [f64; 2]) {
        self.calls += 1;
        self.alike += usize::from(routes.windows(2).all(|w| w[0] == w[1]));
        let of = |route: Route| sides_s[usize::from(route == Route::Gpu)];
        self.better_s += of(routes[0]);
        // The mean of the others, so that more profiles do not count more.
        let others = &routes[1..];
        let added: f64 = others.iter().map(|r| of(*r) - of(routes[0])).sum();
        self.added_s += added / others.len() as f64;
    }

    fn row(&self, name: &str) -> String {
        let alike = 100.0 * self.alike as f64 / self.calls.max(1) as f64;
        let added = 100.0 * self.added_s / self.better_s.max(1e-12);
        format!("| {name} | {} | {alike:.1} | {added:.2} |", self.calls)
    }
}

fn random_shapes() -> Vec<(String, Shape)> {
    let mut random = Random(1);
    let all: Vec<_> = routed().collect();
    let mut shapes = Vec::with_capacity(CALLS);
    while shapes.len() < CALLS {
        let place = (random.share() * all.len() as f64) as usize;
        let (row, precision, _) = &all[place];
        let (m, n, k) = (random.size(), random.size(), random.size());
        let right = row.library == Library::Blas && random.share() < 0.5;
        let dims = Dims { m, n, k, right };
        let letters = match row.library {
            Library::Blas => [0; 4],
            Library::Lapack => {
                let every = Options::every_routed(row, *precision);
                random.pick(&every).unwrap_or_default()
            }
        };
        shapes.push((
            format!("{:?}", row.op).to_lowercase(),
            Shape {
                beta_zero: random.share() < 0.5,
                ..Shape::of_lapack(row.op, *precision, &dims, letters)
            },
        ));
    }
    shapes
}

fn profiles() -> Result<Vec<Profile>, String> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.len() < 2 {
        return Err("which profiles? accepted: two or more".to_owned());
    }
    let read = |path: &String| {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
        Profile::from_toml(&text).map_err(|e| format!("{path}: {e}"))
    };
    paths.iter().map(read).collect()
}

fn main() -> ExitCode {
    let profiles = match profiles() {
        Ok(profiles) => profiles,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let level = Level::new(9).expect("a level");
    let (mut by_family, mut all) = (BTreeMap::<String, Tally>::new(), Tally::default());
    for (name, shape) in random_shapes() {
        let decisions: Vec<_> = profiles
            .iter()
            .map(|p| decide(p, &shape, &Situation::default(), level))
            .collect();
        let routes: Vec<Route> = decisions.iter().map(|d| d.route).collect();
        let p = &decisions[0].prediction;
        for tally in [by_family.entry(name).or_default(), &mut all] {
            tally.add(&routes, [p.cpu_s, p.gpu_s()]);
        }
    }
    println!(
        "| family | calls | decided alike, % | time added by the others' decisions, % |\n|---|---|---|---|"
    );
    for (name, tally) in &by_family {
        println!("{}", tally.row(name));
    }
    println!("{}", all.row("all"));
    if all.alike as f64 >= PROMISED * all.calls as f64 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
