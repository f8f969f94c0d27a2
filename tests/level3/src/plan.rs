//! One random call: what is called with which arguments, and where its operands lie. A plan follows
//! from seed and index alone, so that any call can be repeated without those before it.

use fastrand::Rng;
use num_complex::Complex64;

use crate::family::{Family, Interface, Kind, Precision};

/// Elements of canary around the operands: more than a vector register or an unrolled loop of any
/// kernel holds (16 f32), so that a store that is one vector too far is seen.
const GUARD_ELEMS: usize = 48;
/// A tall, wide or long-k call has one dimension up to this many times `most`.
const ELONGATION: usize = 8;
/// The order of a square operand stays below this many times `most`, since the reference is cubic.
const SQUARE_ELONGATION: usize = 2;

/// From what calls are drawn.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The families.
    pub families: Vec<Family>,
    /// The precisions.
    pub precisions: Vec<Precision>,
    /// The largest dimension of ordinary calls.
    pub most: usize,
    /// The seed of all calls.
    pub seed: u64,
}

/// Where a matrix lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operand {
    /// Logical rows.
    pub rows: usize,
    /// Logical columns.
    pub columns: usize,
    /// The region that holds it.
    pub region: usize,
    /// Its first element in the region.
    pub offset: usize,
    /// Leading dimension in elements.
    pub ld: usize,
    /// Whether a row is contiguous instead of a column.
    pub by_rows: bool,
}

impl Operand {
    /// The position of element (i, j) in the region.
    pub fn at(&self, i: usize, j: usize) -> usize {
        let (inner, outer) = if self.by_rows { (j, i) } else { (i, j) };
        self.offset + inner + outer * self.ld
    }

    /// The contiguous dimension.
    fn lead(&self) -> usize {
        if self.by_rows {
            self.columns
        } else {
            self.rows
        }
    }

    /// How many contiguous vectors there are.
    fn count(&self) -> usize {
        if self.by_rows {
            self.rows
        } else {
            self.columns
        }
    }

    /// Elements from the first to the last one.
    fn span(&self) -> usize {
        if self.lead() == 0 || self.count() == 0 {
            0
        } else {
            (self.count() - 1) * self.ld + self.lead()
        }
    }
}

/// A piece of memory with operands and canaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Elements, guards included.
    pub length: usize,
    /// Whether it ends at a page border before a page that cannot be read.
    pub at_border: bool,
}

/// Which elements of an operand the call refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All.
    Full,
    /// The upper triangle with the diagonal.
    Upper,
    /// The lower triangle with the diagonal.
    Lower,
}

impl Part {
    /// Whether (i, j) belongs to it.
    pub fn holds(self, i: usize, j: usize) -> bool {
        match self {
            Self::Full => true,
            Self::Upper => i <= j,
            Self::Lower => i >= j,
        }
    }
}

/// One call.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its number in the stream of the seed.
    pub index: u64,
    /// The family.
    pub family: Family,
    /// The precision.
    pub precision: Precision,
    /// Fortran or CBLAS.
    pub interface: Interface,
    /// trans, or transa; both cases occur in all letters.
    pub trans_a: char,
    /// transb.
    pub trans_b: char,
    /// uplo.
    pub uplo: char,
    /// side.
    pub side: char,
    /// diag.
    pub diag: char,
    /// m, where there is one.
    pub m: usize,
    /// n.
    pub n: usize,
    /// k, where there is one.
    pub k: usize,
    /// alpha, as the precision holds it.
    pub alpha: Complex64,
    /// beta, as the precision holds it.
    pub beta: Complex64,
    /// A.
    pub a: Operand,
    /// B of the families with two inputs.
    pub b: Option<Operand>,
    /// The output (B of trmm and trsm).
    pub c: Operand,
    /// The memory.
    pub regions: Vec<Region>,
    /// Whether an input gets entries that are not finite.
    pub non_finite: bool,
    /// Whether canaries are NaN (reading one spoils the result) or numbers (a NaN written over a NaN
    /// would not be seen).
    pub nan_canaries: bool,
}

impl Plan {
    /// Call `index` of the seed, and the generator that goes on to fill its operands.
    pub fn draw(choice: &Choice, index: u64) -> (Self, Rng) {
        // The odd constant spreads neighbouring indices (golden ratio of 2^64).
        let mut rng =
            Rng::with_seed(choice.seed.rotate_left(32) ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut plan = Self::arguments(choice, index, &mut rng);
        plan.lay_out(&mut rng);
        // NaN times an empty sum is NaN or nothing, depending on how one reads the definition; the
        // reference BLAS and OpenBLAS differ.
        if plan.alpha.is_nan() && plan.depth() == 0 {
            plan.alpha = Complex64::ONE;
        }
        (plan, rng)
    }

    fn arguments(choice: &Choice, index: u64, rng: &mut Rng) -> Self {
        let (family, precision) = loop {
            let family = pick(rng, &choice.families);
            let precision = pick(rng, &choice.precisions);
            if family.exists_in(precision) {
                break (family, precision);
            }
        };
        let mut plan = Self {
            index,
            family,
            precision,
            interface: pick(
                rng,
                &[
                    Interface::Fortran,
                    Interface::CblasColumns,
                    Interface::CblasRows,
                ],
            ),
            trans_a: letter(rng, family.trans(precision)),
            trans_b: letter(rng, family.trans(precision)),
            uplo: letter(rng, &['U', 'L']),
            side: letter(rng, &['L', 'R']),
            diag: letter(rng, &['U', 'N']),
            m: 0,
            n: 0,
            k: 0,
            alpha: scalar(rng, precision, family == Family::Herk, false),
            beta: scalar(rng, precision, family.hermitian_output(), true),
            a: Operand::default(),
            b: None,
            c: Operand::default(),
            regions: Vec::new(),
            non_finite: false,
            nan_canaries: rng.bool(),
        };
        plan.draw_dimensions(choice.most, rng);
        let takes_non_finite = matches!(family, Family::Gemm | Family::Syrk | Family::Symm);
        let finite = plan.alpha.is_finite() && plan.beta.is_finite();
        plan.non_finite =
            rng.u8(0..100) < 6 && takes_non_finite && finite && plan.alpha != Complex64::ZERO;
        plan
    }

    fn draw_dimensions(&mut self, most: usize, rng: &mut Rng) {
        let mut sizes = [0; 3];
        sizes.fill_with(|| dimension(rng, most));
        if rng.u8(0..100) < 15 {
            sizes.fill_with(|| dimension(rng, 8.min(most)));
            sizes[rng.usize(0..3)] = rng.usize(1..=ELONGATION * most);
        }
        [self.m, self.n, self.k] = sizes;
        let square = SQUARE_ELONGATION * most;
        match self.family.kind() {
            Kind::Product => {}
            Kind::TriangleOfProduct | Kind::RankK | Kind::Rank2k => self.n = self.n.min(square),
            Kind::Symmetric | Kind::Triangular if self.left() => self.m = self.m.min(square),
            Kind::Symmetric | Kind::Triangular => self.n = self.n.min(square),
        }
    }

    /// trans (transa) as a capital letter.
    pub fn op_a(&self) -> char {
        self.trans_a.to_ascii_uppercase()
    }

    /// transb as a capital letter.
    pub fn op_b(&self) -> char {
        self.trans_b.to_ascii_uppercase()
    }

    /// Whether A stands on the left.
    pub fn left(&self) -> bool {
        self.side.eq_ignore_ascii_case(&'L')
    }

    /// Whether the triangular A has a diagonal of ones that is not stored.
    pub fn unit(&self) -> bool {
        self.diag.eq_ignore_ascii_case(&'U')
    }

    /// The triangle that uplo names.
    pub fn triangle(&self) -> Part {
        if self.uplo.eq_ignore_ascii_case(&'U') {
            Part::Upper
        } else {
            Part::Lower
        }
    }

    /// What is referred to of A.
    pub fn part_a(&self) -> Part {
        match self.family.kind() {
            Kind::Symmetric | Kind::Triangular => self.triangle(),
            _ => Part::Full,
        }
    }

    /// What is written of C.
    pub fn part_c(&self) -> Part {
        match self.family.kind() {
            Kind::TriangleOfProduct | Kind::RankK | Kind::Rank2k => self.triangle(),
            _ => Part::Full,
        }
    }

    /// The number of products in an element of the result.
    pub fn depth(&self) -> usize {
        match self.family.kind() {
            Kind::Symmetric | Kind::Triangular if self.left() => self.m,
            Kind::Symmetric | Kind::Triangular => self.n,
            _ => self.k,
        }
    }

    /// Whether A and B are one matrix.
    pub fn same_inputs(&self) -> bool {
        self.b == Some(self.a)
    }

    /// Whether the definition leaves C as it is, bit for bit.
    pub fn changes_nothing(&self) -> bool {
        let empty = self.c.rows == 0 || self.c.columns == 0;
        let no_product = self.alpha == Complex64::ZERO || self.depth() == 0;
        let in_place = self.family.kind() == Kind::Triangular;
        empty || (!in_place && no_product && self.beta == Complex64::ONE)
    }

    /// Logical rows and columns of A, of B, of C.
    fn shapes(&self) -> [(usize, usize); 3] {
        let (m, n, k) = (self.m, self.n, self.k);
        let turned = |trans: char, rows, columns| {
            if trans == 'N' {
                (rows, columns)
            } else {
                (columns, rows)
            }
        };
        let order = if self.left() { (m, m) } else { (n, n) };
        match self.family.kind() {
            Kind::Product => [turned(self.op_a(), m, k), turned(self.op_b(), k, n), (m, n)],
            Kind::TriangleOfProduct => {
                [turned(self.op_a(), n, k), turned(self.op_b(), k, n), (n, n)]
            }
            Kind::Symmetric => [order, (m, n), (m, n)],
            Kind::RankK | Kind::Rank2k => {
                let turned = turned(self.op_a(), n, k);
                [turned, turned, (n, n)]
            }
            Kind::Triangular => [order, (0, 0), (m, n)],
        }
    }

    /// Changes the dimensions so that A and B can be one matrix.
    fn make_inputs_alike(&mut self) {
        let turned_alike = (self.op_a() == 'N') == (self.op_b() == 'N');
        let small = self.m.min(self.n).min(self.k);
        match self.family.kind() {
            Kind::Product if turned_alike => [self.m, self.n, self.k] = [small; 3],
            Kind::Product => self.n = self.m,
            Kind::TriangleOfProduct if turned_alike => {
                self.n = self.n.min(self.k);
                self.k = self.n;
            }
            Kind::Symmetric => {
                self.m = self.m.min(self.n);
                self.n = self.m;
            }
            _ => {}
        }
    }

    fn lay_out(&mut self, rng: &mut Rng) {
        let two_inputs = !matches!(self.family.kind(), Kind::RankK | Kind::Triangular);
        let alike = two_inputs && rng.u8(0..100) < 10;
        if alike {
            self.make_inputs_alike();
        }
        let by_rows = self.interface == Interface::CblasRows;
        let [a, b, c] = self.shapes().map(|(rows, columns)| Operand {
            rows,
            columns,
            by_rows,
            ..Operand::default()
        });
        let mut operands = if two_inputs && !alike {
            vec![a, c, b]
        } else {
            vec![a, c]
        };
        if rng.u8(0..100) < 12 {
            self.regions = vec![place_together(&mut operands, rng)];
        } else {
            self.regions = (0..)
                .zip(&mut operands)
                .map(|(region, operand)| {
                    operand.region = region;
                    place_apart(operand, rng)
                })
                .collect();
        }
        self.a = operands[0];
        self.c = operands[1];
        self.b = match (two_inputs, alike) {
            (false, _) => None,
            (true, true) => Some(self.a),
            (true, false) => Some(operands[2]),
        };
    }
}

impl Family {
    /// Whether C is Hermitian, and beta therefore real.
    pub fn hermitian_output(self) -> bool {
        matches!(self, Self::Herk | Self::Her2k)
    }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(0..from.len())]
}

fn letter(rng: &mut Rng, from: &[char]) -> char {
    let letter = pick(rng, from);
    if rng.bool() {
        letter.to_ascii_lowercase()
    } else {
        letter
    }
}

/// 0, 1, a few, some, up to `most`. The shares keep 100,000 calls with `most` = 96 within two minutes
/// of one core: the mean is about 20.
fn dimension(rng: &mut Rng, most: usize) -> usize {
    let size = match rng.u8(0..100) {
        0..4 => 0,
        4..10 => 1,
        10..45 => rng.usize(2..=12),
        45..80 => rng.usize(2..=40),
        _ => rng.usize(0..=most),
    };
    size.min(most)
}

/// 0, 1, -1, random, rarely NaN; a complex precision gets complex ones too.
fn scalar(rng: &mut Rng, precision: Precision, real: bool, beta: bool) -> Complex64 {
    // A third of the betas are zero, since C may then hold anything.
    let zeros = if beta { 30 } else { 8 };
    let round = |x: f64| match precision {
        Precision::S | Precision::C => f64::from(x as f32),
        Precision::D | Precision::Z => x,
    };
    let mut random = || round(4.0 * rng.f64() - 2.0);
    let (re, im) = (random(), random());
    let complex = precision.complex() && !real && rng.bool();
    let im = if complex { im } else { 0.0 };
    match rng.u8(0..100) {
        share if share < zeros => Complex64::ZERO,
        share if share < zeros + 20 => Complex64::ONE,
        share if share < zeros + 28 => -Complex64::ONE,
        share if share < zeros + 29 => Complex64::new(f64::NAN, im),
        _ => Complex64::new(re, im),
    }
}

/// Puts an operand into a region of its own.
fn place_apart(operand: &mut Operand, rng: &mut Rng) -> Region {
    let gap = if rng.bool() { 0 } else { rng.usize(1..=9) };
    operand.ld = (operand.lead() + gap).max(1);
    // Any alignment of the first element.
    operand.offset = GUARD_ELEMS + rng.usize(0..16);
    close_region(operand.offset + operand.span(), rng)
}

/// Puts all operands into one region, as blocks of one larger matrix that share columns but no row.
fn place_together(operands: &mut [Operand], rng: &mut Rng) -> Region {
    let start = GUARD_ELEMS + rng.usize(0..16);
    let mut order: Vec<usize> = (0..operands.len()).collect();
    rng.shuffle(&mut order);
    let mut lead = 0;
    for &index in &order {
        lead += rng.usize(0..3);
        operands[index].offset = start + lead;
        lead += operands[index].lead();
    }
    let ld = (lead + rng.usize(0..3)).max(1);
    for operand in operands.iter_mut() {
        operand.ld = ld;
    }
    let end = operands.iter().map(|o| o.offset + o.span()).max();
    close_region(end.unwrap_or(start), rng)
}

fn close_region(end: usize, rng: &mut Rng) -> Region {
    let at_border = rng.u8(0..4) == 0;
    let length = if at_border { end } else { end + GUARD_ELEMS };
    Region { length, at_border }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    /// Everything, from dimensions up to `most`.
    fn everything(most: usize, seed: u64) -> Choice {
        Choice {
            families: Family::value_variants().to_vec(),
            precisions: Precision::value_variants().to_vec(),
            most,
            seed,
        }
    }

    #[test]
    fn operands_lie_in_their_regions_and_apart() {
        let choice = everything(20, 1);
        for index in 0..4000 {
            let (plan, _) = Plan::draw(&choice, index);
            let mut taken: Vec<Vec<bool>> =
                plan.regions.iter().map(|r| vec![false; r.length]).collect();
            let separate = plan.b.filter(|_| !plan.same_inputs());
            for operand in [Some(plan.a), separate, Some(plan.c)].into_iter().flatten() {
                assert!(operand.ld >= operand.lead().max(1), "{plan:?}");
                for i in 0..operand.rows {
                    for j in 0..operand.columns {
                        let element = &mut taken[operand.region][operand.at(i, j)];
                        assert!(!*element, "two operands share an element: {plan:?}");
                        *element = true;
                    }
                }
            }
            for (region, taken) in plan.regions.iter().zip(&taken) {
                let guard = |elements: &[bool]| elements.iter().all(|taken| !taken);
                assert!(guard(&taken[..GUARD_ELEMS]), "{plan:?}");
                assert!(region.at_border || guard(&taken[region.length - GUARD_ELEMS..]));
            }
        }
    }

    #[test]
    fn every_kind_of_call_is_drawn() {
        let choice = everything(96, 7);
        let plans: Vec<Plan> = (0..20_000).map(|i| Plan::draw(&choice, i).0).collect();
        let occurs = |what: &str, holds: &dyn Fn(&Plan) -> bool| {
            let count = plans.iter().filter(|plan| holds(plan)).count();
            assert!(count > 20, "{what}: {count} of {}", plans.len());
        };
        for &family in Family::value_variants() {
            for &precision in Precision::value_variants() {
                if family.exists_in(precision) {
                    occurs("pair", &|p| p.family == family && p.precision == precision);
                }
            }
        }
        occurs("same matrix", &|p| p.same_inputs() && p.a.rows > 1);
        occurs("one allocation", &|p| p.regions.len() == 1 && p.c.rows > 1);
        occurs("border", &|p| p.regions.iter().any(|r| r.at_border));
        occurs("non-finite", &|p| p.non_finite);
        occurs("NaN alpha", &|p| p.alpha.re.is_nan());
        occurs("NaN beta", &|p| p.beta.re.is_nan());
        occurs("long k", &|p| p.k > 400);
        occurs("empty", &|p| p.n == 0);
        occurs("lower case", &|p| {
            p.trans_a == 'c' && p.uplo == 'l' && p.diag == 'u'
        });
        occurs("complex alpha", &|p| p.alpha.im != 0.0);
        let herk = |p: &&Plan| p.family == Family::Herk;
        assert!(
            plans
                .iter()
                .filter(herk)
                .all(|p| p.alpha.im == 0.0 && p.beta.im == 0.0)
        );
    }

    #[test]
    fn a_call_follows_from_seed_and_index() {
        let choice = everything(96, 3);
        let text = |index| format!("{:?}", Plan::draw(&choice, index).0);
        assert_eq!(text(5), text(5));
        assert_ne!(text(5), text(6));
        let other = format!("{:?}", Plan::draw(&everything(96, 4), 5).0);
        assert_ne!(text(5), other);
    }
}
