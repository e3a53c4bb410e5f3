/* Small rounds of one decision, compiled: the scores of arms, and a round of learning, on the buffers of a learner.

   The Python methods are the reference, and do all that is rare. `learn` leaves such rounds to them, and has then written
   nothing. Locks, checks of arguments, copies and version counters are the callers', as for NumPy views.
   torchonline/core/compiled.py says when a learner has a core.

   Numbers are float64 and counts int64, in contiguous arrays. Matrices are symmetric: their rows are their columns. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Loops in wider registers, where the processor has them: the same operations in the same order, with the same bits. */
#if defined(__GNUC__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

/* The arrays of a core. Ridge regression has LOGDET; the adaptive ones have what follows it. A policy has a model for each arm. */
enum {
    V, V_INV, THETA_HAT, ROUNDS, LOGDET, ONES_HAT, LOSS_GAP,
    POOLED_LOSS_GAP, SEEN, SPREAD, GAIN, TARGET, RESIDUALS, /* equal for all arms; RESIDUALS may be their sum of squares */
    ALL_ROUNDS, MEAN, SQUARES, ROWS, RECENT, EDGES, PAIRS,  /* of the policy and its scaler */
    ARRAYS
};
static const char *const array_names[ARRAYS] = {
    "V", "V_inv", "theta_hat", "rounds", "logdet", "ones_hat", "loss_gap",
    "pooled_loss_gap", "seen", "spread", "gain", "target", "residuals",
    "policy.rounds", "scaler.mean", "scaler.squares", "scaler.rounds", "scaler.recent", "scaler.edges", "scaler.pairs",
};

/* The options of a core. One that is None in Python is 0. */
enum {
    NOISE_SCALE, RADIUS_SCALE, RESTART_EVERY, REFINE_EVERY, MOST_GROWTH,
    IS_CLASSIC, LOG_TERM, UNIT, SQUARED_NOISE, SQUARED_BIAS, BIAS_TERM,
    ZERO_ODDS, LOG_ODDS, FLOOR, QUANTILE, CUT, WARMUP, EARLY_ROUNDS,
    CLIP, MAGNITUDE_WEIGHT, MEAN_MAGNITUDE, PRODUCT_WEIGHT, STEP_WEIGHT, INTERCEPT, FREEZE_AFTER, SQUARED_REACH,
    OPTIONS
};
static const char *const option_names[OPTIONS] = {
    "noise_scale", "radius_scale", "restart_every", "refine_every", "most_growth",
    "is_classic", "log_term", "unit", "squared_noise", "squared_bias", "bias_term",
    "zero_odds", "log_odds", "floor", "quantile", "cut", "warmup", "early_rounds",
    "scaler.clip", "magnitude_weight", "mean_magnitude", "product_weight", "step_weight", "scaler.intercept",
    "scaler.freeze_after", "scaler.squared_reach",
};

/* What `learn` returns: compiled.py names them too. */
enum { LEFT, LEARNT, REVIEW };

typedef struct {
    PyObject_HEAD
    Py_buffer held[ARRAYS];
    double *at[ARRAYS]; /* the memory of the arrays; NULL without one */
    double option[OPTIONS];
    Py_ssize_t arms, dim, inputs, pairs, edges, residuals, recent;
    double *raw, *row, *product, *sorted; /* room for inputs, features, a product with these, and residuals */
} Core;

static int64_t *counts(const Core *core, int array) { return (int64_t *)core->at[array]; }

/* As in Python's functions of these names, a NaN stays NaN. */
static double minimum(double x, double y) { return x <= y || x != x ? x : y; }
static double maximum(double x, double y) { return x >= y || x != x ? x : y; }

WIDE static double dot(const double *restrict x, const double *restrict y, Py_ssize_t n)
{
    double sums[4] = {0.0};
    Py_ssize_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            sums[j] += x[i + j] * y[i + j];
    for (; i < n; i++)
        sums[0] += x[i] * y[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* y += factor x */
static void add_multiple(double *restrict y, double factor, const double *restrict x, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

/* y = matrix x, from four columns at a time, so that entries of y are computed side by side */
WIDE static void matvec(double *restrict y, const double *restrict matrix, const double *restrict x, Py_ssize_t n)
{
    Py_ssize_t i = 0;
    memset(y, 0, n * sizeof(double));
    for (; i + 4 <= n; i += 4) {
        const double *m = matrix + i * n;
        double p = x[i], q = x[i + 1], r = x[i + 2], s = x[i + 3];
        for (Py_ssize_t j = 0; j < n; j++)
            y[j] += (p * m[j] + q * m[n + j]) + (r * m[2 * n + j] + s * m[3 * n + j]);
    }
    for (; i < n; i++)
        add_multiple(y, x[i], matrix + i * n, n);
}

/* matrix += sign u u' */
WIDE static void add_outer(double *restrict matrix, double sign, const double *restrict u, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        double factor = sign * u[i];
        for (Py_ssize_t j = 0; j < n; j++)
            matrix[i * n + j] += factor * u[j];
    }
}

/* product = V^-1 row; return row' V^-1 row */
static double squared_width(Core *core, Py_ssize_t arm)
{
    matvec(core->product, core->at[V_INV] + arm * core->dim * core->dim, core->row, core->dim);
    return dot(core->row, core->product, core->dim);
}

/* StandardScaler._weights and `standardised`: from the inputs in `raw` to the features in `row`. Return False for a wrong pair. */
static int standardise(Core *core)
{
    const double *o = core->option, *x = core->raw, *mean = core->at[MEAN], *squares = core->at[SQUARES];
    const int64_t *pairs = counts(core, PAIRS);
    double before = (double)*counts(core, ROWS), is_moving = o[FREEZE_AFTER] == 0.0 || before < o[FREEZE_AFTER];
    before = is_moving != 0.0 ? before : o[FREEZE_AFTER];
    double share = before / (before + is_moving), factor = (before > 1.0) * share * sqrt(before + is_moving - 1.0);
    double *z = core->row, *next = z + core->inputs;
    share *= is_moving;
    for (Py_ssize_t i = 0; i < core->inputs; i++) {
        double offset = minimum(maximum(x[i] - mean[i], -1e150), 1e150);
        double size = squares[i] + share * (offset * offset);
        z[i] = factor * (offset * (size > 0.0)) / sqrt(size + (size == 0.0));
        z[i] = minimum(maximum(z[i], -o[CLIP]), o[CLIP]);
    }
    for (Py_ssize_t i = 0; o[MAGNITUDE_WEIGHT] > 0.0 && i < core->inputs; i++)
        *next++ = o[MAGNITUDE_WEIGHT] * (fabs(z[i]) - o[MEAN_MAGNITUDE]);
    uint64_t columns = (uint64_t)(next - z);
    for (Py_ssize_t i = 0; i < core->pairs; i++) {
        uint64_t one = (uint64_t)pairs[i], other = (uint64_t)pairs[core->pairs + i];
        if (one >= columns || other >= columns) /* after to_empty() they are any numbers */
            return 0;
        *next++ = o[PRODUCT_WEIGHT] * (z[one] * z[other]);
    }
    for (Py_ssize_t i = 0; i < core->inputs * core->edges; i++)
        *next++ = o[STEP_WEIGHT] * (x[i / core->edges] > core->at[EDGES][i]);
    if (o[INTERCEPT] > 0.0)
        *next = o[INTERCEPT];
    return 1;
}

/* StandardScaler._observe of the inputs in `raw`; return whether a review is due. */
static int observe_inputs(Core *core)
{
    double *mean = core->at[MEAN], *squares = core->at[SQUARES], freeze_after = core->option[FREEZE_AFTER];
    int64_t before = (*counts(core, ROWS))++;
    double count = (double)before, share = (before >= core->recent) * (count - 1.0) / core->option[SQUARED_REACH];
    if (freeze_after > 0.0 && count >= freeze_after)
        return 0;
    memcpy(core->at[RECENT] + before % core->recent * core->inputs, core->raw, core->inputs * sizeof(double));
    for (Py_ssize_t i = 0; i < core->inputs; i++) {
        double offset = core->raw[i] - mean[i];
        if (offset * offset * share > squares[i] && squares[i] > 0.0) {
            double bound = sqrt(squares[i] / share);
            offset = maximum(minimum(offset, bound), -bound);
        }
        double move = offset / (count + 1.0);
        mean[i] += move;
        squares[i] += offset * (offset - move);
    }
    return (before + 1) % core->recent == 0;
}

/* precision_matrix.py's `refine_inverse_`: correct one column of an arm's inverse. */
static void refine(Core *core, Py_ssize_t arm, int64_t count)
{
    Py_ssize_t n = core->dim, j = (Py_ssize_t)(count % n);
    double *inverse = core->at[V_INV] + arm * n * n, *correction = core->product;
    const double *column = core->at[V] + (arm * n + j) * n;
    double pivot = column[j];
    matvec(correction, inverse, column, n);
    correction[j] -= 1.0;
    for (Py_ssize_t i = 0; i < n; i++)
        correction[i] /= pivot;
    correction[j] -= 0.5 * dot(column, correction, n) / pivot;
    for (Py_ssize_t i = 0; i < n; i++)
        inverse[i * n + j] -= correction[i];
    add_multiple(inverse + j * n, -1.0, correction, n);
}

/* Estimator._add_outer_, given V^-1 row in `product`: add row row' to V, and end the round. */
static void add_row(Core *core, Py_ssize_t arm, double quadratic)
{
    Py_ssize_t n = core->dim;
    int64_t every = (int64_t)core->option[REFINE_EVERY], round = ++counts(core, ROUNDS)[arm];
    double root = sqrt(1.0 + quadratic);
    add_outer(core->at[V] + arm * n * n, 1.0, core->row, n);
    for (Py_ssize_t i = 0; i < n; i++)
        core->product[i] /= root;
    add_outer(core->at[V_INV] + arm * n * n, -1.0, core->product, n);
    if (round % every == 0)
        refine(core, arm, round / every);
}

static double mean_reward(const Core *core, Py_ssize_t arm)
{
    return core->at[GAIN][arm] / maximum((double)counts(core, SEEN)[arm], 1.0);
}

static double weight_of_mean(const Core *core, Py_ssize_t arm)
{
    double count = (double)counts(core, ROUNDS)[arm], spread = core->at[SPREAD][arm];
    if (core->option[ZERO_ODDS] == 0.0 || count == 0.0)
        return 1.0;
    double gap = core->at[LOSS_GAP][arm] + core->at[POOLED_LOSS_GAP][arm] / (count + 1.0);
    return 1.0 / (1.0 + exp(minimum(gap / maximum(2.0 * spread * spread, 1e-37) + core->option[LOG_ODDS], 709.0)));
}

/* Sort the k-th smallest number to its place, with no larger one before it and no smaller one after it. */
static int64_t nth(int64_t *x, Py_ssize_t n, Py_ssize_t k)
{
    Py_ssize_t low = 0, high = n - 1;
    while (low < high) {
        Py_ssize_t i = low, j = high;
        int64_t pivot = x[low + (high - low) / 2];
        while (i <= j) {
            while (x[i] < pivot)
                i++;
            while (x[j] > pivot)
                j--;
            if (i <= j) {
                int64_t other = x[i];
                x[i++] = x[j];
                x[j--] = other;
            }
        }
        if (k > j && k < i)
            break;
        high = k <= j ? j : high;
        low = k >= i ? i : low;
    }
    return x[k];
}

static double as_number(int64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* RobustRidgeRegression._keep_: update an arm's residuals and spread; return the residual to learn from. */
static double keep_robust(Core *core, Py_ssize_t arm, double residual)
{
    const double *o = core->option;
    Py_ssize_t n = core->residuals;
    double *residuals = core->at[RESIDUALS] + arm * n, size = fabs(residual), sum = 0.0;
    int64_t seen = counts(core, SEEN)[arm], *sorted = (int64_t *)core->sorted, largest = 0, above = INT64_MAX;
    size = seen > 0 ? size : 0.0 * size;
    /* The order of numbers of at least 0 is that of their bits, also with infinity and NaN. */
    memcpy(sorted, residuals, n * sizeof(double));
    for (Py_ssize_t i = 0; i < n; i++)
        largest = sorted[i] > largest ? sorted[i] : largest;
    residuals[seen % n] = size;
    memcpy(sorted + seen % n, &size, sizeof size);
    Py_ssize_t count = seen + 1 < n ? (Py_ssize_t)seen + 1 : n;
    double position = o[QUANTILE] * ((double)count - 1.0), low = floor(position);
    Py_ssize_t place = n - count + (Py_ssize_t)low;
    double below = as_number(nth(sorted, n, place));
    for (Py_ssize_t i = place + 1; i < n; i++)
        above = sorted[i] < above ? sorted[i] : above;
    double upper = place + 1 < n ? as_number(above) : below;
    double limit = o[CUT] * (below + (position - low) * (upper - below));
    if ((double)seen < o[WARMUP])
        limit = 3.0 * as_number(largest);
    if (limit <= 0.0 || seen == 0)
        limit = size + (double)INFINITY;
    for (Py_ssize_t i = 0; i < n; i++) {
        double kept = minimum(residuals[i], limit);
        sum += kept * kept;
    }
    if (sum / (double)count != 0.0)
        core->at[SPREAD][arm] = sqrt(sum / (double)count);
    return maximum(minimum(residual, limit), -limit);
}

/* AdaptiveRidgeRegression._keep_ */
static double keep(Core *core, Py_ssize_t arm, double residual)
{
    double squares = core->at[RESIDUALS][arm] + residual * residual;
    core->at[RESIDUALS][arm] = squares;
    core->at[SPREAD][arm] = sqrt((squares + core->option[SQUARED_NOISE]) / ((double)counts(core, SEEN)[arm] + 2.0));
    return residual;
}

/* AdaptiveEstimator._observe of the weighted features in `row`, given V^-1 row in `product`. */
static void observe_adaptive(Core *core, Py_ssize_t arm, double reward, double weight, double quadratic)
{
    Py_ssize_t n = core->dim;
    double *theta_hat = core->at[THETA_HAT] + arm * n, *ones_hat = core->at[ONES_HAT] + arm * n;
    double to_zero = dot(core->row, theta_hat, n), missing = weight - dot(core->row, ones_hat, n);
    double correction = mean_reward(core, arm) * missing, predictor = to_zero + weight_of_mean(core, arm) * correction;
    double residual = weight * reward - predictor;
    double target = predictor + (core->option[QUANTILE] > 0.0 ? keep_robust : keep)(core, arm, residual);
    double error = target - to_zero, most = 2.0 * core->at[SPREAD][arm];
    double of_mean = minimum(fabs(error - correction), most), of_zero = minimum(fabs(error), most);
    double gap = of_mean * of_mean - of_zero * of_zero;
    counts(core, SEEN)[arm] += 1;
    core->at[GAIN][arm] += target / weight;
    core->at[TARGET][arm] = target;
    core->at[LOSS_GAP][arm] += gap;
    core->at[POOLED_LOSS_GAP][arm] += gap;
    add_multiple(theta_hat, error / (1.0 + quadratic), core->product, n);
    add_multiple(ones_hat, missing / (1.0 + quadratic), core->product, n);
    /* What the arms share. */
    for (int array = POOLED_LOSS_GAP; array <= RESIDUALS; array++) {
        Py_ssize_t size = core->held[array].len / core->arms;
        char *first = core->held[array].buf;
        for (Py_ssize_t k = 0; k < core->arms; k++)
            if (k != arm && size == sizeof(double)) /* without a call */
                memcpy(first + k * size, first + arm * size, sizeof(double));
            else if (k != arm)
                memcpy(first + k * size, first + arm * size, (size_t)size);
    }
}

/* RidgeRegression._observe, with the same arguments as above. */
static void observe_ridge(Core *core, Py_ssize_t arm, double reward, double weight, double quadratic)
{
    double *theta_hat = core->at[THETA_HAT] + arm * core->dim;
    double residual = weight * reward - dot(core->row, theta_hat, core->dim);
    add_multiple(theta_hat, residual / (1.0 + quadratic), core->product, core->dim);
    core->at[LOGDET][arm] += log1p(quadratic);
}

/* Whether a round of an arm is followed by a restart, or is an early one, which is learnt again; or a count is no count. */
static int is_rare(const Core *core, Py_ssize_t arm)
{
    const double *o = core->option;
    int64_t rows = core->at[MEAN] ? *counts(core, ROWS) : 0, seen = core->at[ONES_HAT] ? counts(core, SEEN)[arm] : 0;
    if (counts(core, ROUNDS)[arm] < 0 || seen < 0 || rows < 0)
        return 1; /* their remainders are indices */
    if (!core->at[ALL_ROUNDS])
        return 0;
    if (*counts(core, ALL_ROUNDS) < (int64_t)o[EARLY_ROUNDS])
        return 1;
    if (o[RESTART_EVERY] > 0.0 && (double)counts(core, ROUNDS)[arm] + 1.0 >= o[RESTART_EVERY])
        return 1;
    return core->at[MEAN] && (double)(rows + 1) == o[FREEZE_AFTER];
}

/* RidgeRegression.radius */
static double ridge_radius(const Core *core, Py_ssize_t arm)
{
    const double *o = core->option;
    double log_terms = core->at[LOGDET][arm] + o[LOG_TERM];
    if (o[IS_CLASSIC] != 0.0)
        return o[RADIUS_SCALE] * (o[NOISE_SCALE] * sqrt(log_terms) + o[BIAS_TERM]);
    return o[RADIUS_SCALE] * (o[UNIT] * sqrt(o[SQUARED_NOISE] * log_terms + o[SQUARED_BIAS]));
}

/* UCB.scores_of the features in `row`, by the model of an arm. */
static double score(Core *core, Py_ssize_t arm)
{
    Py_ssize_t n = core->dim;
    double width = sqrt(maximum(squared_width(core, arm), 1e-38));
    double estimate = dot(core->at[THETA_HAT] + arm * n, core->row, n);
    if (!core->at[ONES_HAT])
        return estimate + ridge_radius(core, arm) * width;
    double mean = mean_reward(core, arm), missing = 1.0 - dot(core->at[ONES_HAT] + arm * n, core->row, n);
    estimate += weight_of_mean(core, arm) * mean * missing;
    if (core->option[FLOOR] > 0.0)
        estimate = maximum(estimate, minimum(0.5 * mean, core->option[FLOOR]));
    return estimate + core->option[RADIUS_SCALE] * core->at[SPREAD][arm] * width;
}

/* Take an array of float64 with `axes` axes, the last of `size` entries. Return False, with an exception, for another one. */
static int take(PyObject *array, Py_buffer *taken, int axes, Py_ssize_t size)
{
    if (PyObject_GetBuffer(array, taken, PyBUF_STRIDES | PyBUF_FORMAT) < 0)
        return 0;
    if (taken->ndim == axes && taken->shape[axes - 1] == size && !strcmp(taken->format, "d"))
        return 1;
    PyErr_Format(PyExc_TypeError, "expected float64 of %d axes with %zd entries in the last, got another array", axes, size);
    PyBuffer_Release(taken);
    return 0;
}

static void copy_row(double *restrict to, const Py_buffer *x, Py_ssize_t row, Py_ssize_t n)
{
    const char *from = (const char *)x->buf + (x->ndim == 2 ? row * x->strides[0] : 0);
    for (Py_ssize_t i = 0; i < n; i++)
        memcpy(to + i, from + i * x->strides[x->ndim - 1], sizeof(double));
}

/* Read one row of inputs, and make its features. */
static int read_inputs(Core *core, PyObject *array)
{
    Py_buffer x;
    if (!take(array, &x, 1, core->inputs))
        return 0;
    copy_row(core->at[MEAN] ? core->raw : core->row, &x, 0, core->inputs);
    PyBuffer_Release(&x);
    if (!core->at[MEAN] || standardise(core))
        return 1;
    PyErr_Format(PyExc_IndexError, "pairs: expected indices of features, got others; load a state dict");
    return 0;
}

/* scores(x, out): write the scores of all arms for one row of inputs; or, with one model, the scores of all rows. */
static PyObject *scores(Core *core, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer out, x;
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "expected 2 arguments, got %zd", count);
    if (core->at[ALL_ROUNDS]) {
        if (!read_inputs(core, arguments[0]) || !take(arguments[1], &out, 1, core->arms))
            return NULL;
        for (Py_ssize_t k = 0; k < core->arms; k++)
            ((double *)out.buf)[k] = score(core, k);
    } else {
        if (!take(arguments[0], &x, 2, core->dim))
            return NULL;
        if (!take(arguments[1], &out, 1, x.shape[0])) {
            PyBuffer_Release(&x);
            return NULL;
        }
        for (Py_ssize_t k = 0; k < x.shape[0]; k++) {
            copy_row(core->row, &x, k, core->dim);
            ((double *)out.buf)[k] = score(core, 0);
        }
        PyBuffer_Release(&x);
    }
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

/* learn(x, arm, reward, noise_scale): learn a round. Return LEARNT; REVIEW if Python has to review the scaler's moments, too;
   or LEFT, without a write, if Python has to learn the round. */
static PyObject *learn(Core *core, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4)
        return PyErr_Format(PyExc_TypeError, "expected 4 arguments, got %zd", count);
    Py_ssize_t arm = PyLong_AsSsize_t(arguments[1]);
    double reward = PyFloat_AsDouble(arguments[2]), weight = core->option[NOISE_SCALE] / PyFloat_AsDouble(arguments[3]);
    if (PyErr_Occurred() || !read_inputs(core, arguments[0]))
        return NULL;
    if (arm < 0 || arm >= core->arms)
        return PyErr_Format(PyExc_IndexError, "expected an arm below %zd, got %zd", core->arms, arm);
    if (is_rare(core, arm))
        return PyLong_FromLong(LEFT);
    for (Py_ssize_t i = 0; weight != 1.0 && i < core->dim; i++)
        core->row[i] *= weight;
    double quadratic = squared_width(core, arm);
    if (!(quadratic < core->option[MOST_GROWTH])) /* also NaN */
        return PyLong_FromLong(LEFT);
    (core->at[ONES_HAT] ? observe_adaptive : observe_ridge)(core, arm, reward, weight, quadratic);
    add_row(core, arm, quadratic);
    if (core->at[ALL_ROUNDS])
        *counts(core, ALL_ROUNDS) += 1;
    return PyLong_FromLong(core->at[MEAN] && observe_inputs(core) ? REVIEW : LEARNT);
}

/* best(scores): the index of the largest number; -1 if several are as large up to rounding, for NaN, and for other arrays. */
static PyObject *best(PyObject *module, PyObject *array)
{
    Py_buffer x;
    (void)module;
    if (PyObject_GetBuffer(array, &x, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
        return PyErr_Clear(), PyLong_FromSsize_t(-1);
    const double *s = x.buf, rounding = ldexp(8.0, -52);
    Py_ssize_t n = strcmp(x.format, "d") ? 0 : x.len / (Py_ssize_t)sizeof(double), top = 0, ties = 0;
    for (Py_ssize_t k = 1; k < n; k++)
        top = s[k] > s[top] ? k : top;
    for (Py_ssize_t k = 0; k < n; k++)
        ties += !(s[k] < minimum(s[top] * (1.0 - rounding), s[top] * (1.0 + rounding)));
    PyBuffer_Release(&x);
    return PyLong_FromSsize_t(ties == 1 ? top : -1);
}

/* sum_of_squares(x): that of an array of float64; -1 for other and for scattered ones. */
static PyObject *sum_of_squares(PyObject *module, PyObject *array)
{
    Py_buffer x;
    double sum = -1.0;
    (void)module;
    if (PyObject_GetBuffer(array, &x, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
    } else {
        if (!strcmp(x.format, "d"))
            sum = dot(x.buf, x.buf, x.len / (Py_ssize_t)sizeof(double));
        PyBuffer_Release(&x);
    }
    return PyFloat_FromDouble(sum);
}

/* Take the arrays and options of a core from a dict, and check that the sizes of the arrays fit together. */
static int fill(Core *core, PyObject *values)
{
    for (int i = 0; i < OPTIONS; i++) {
        PyObject *value = PyDict_GetItemString(values, option_names[i]);
        core->option[i] = value && value != Py_None ? PyFloat_AsDouble(value) : 0.0;
        if (PyErr_Occurred())
            return 0;
    }
    for (int i = 0; i < ARRAYS; i++) {
        PyObject *array = PyDict_GetItemString(values, array_names[i]);
        if (!array)
            continue;
        if (PyObject_GetBuffer(array, &core->held[i], PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0)
            return 0;
        core->at[i] = core->held[i].buf;
    }
    const Py_buffer *held = core->held;
    Py_ssize_t last = held[V].ndim - 1, has_arms = core->at[ALL_ROUNDS] != NULL, scaled = core->at[MEAN] != NULL;
    Py_ssize_t adaptive = core->at[ONES_HAT] != NULL;
    if (last != 1 + has_arms || scaled + adaptive > 2 * has_arms)
        return 0;
    Py_ssize_t n = core->dim = held[V].shape[last], k = core->arms = has_arms ? held[V].shape[0] : 1;
    Py_ssize_t d = core->inputs = scaled ? held[MEAN].shape[0] : n;
    core->residuals = adaptive && k > 0 ? held[RESIDUALS].len / (Py_ssize_t)sizeof(double) / k : 0;
    core->recent = scaled && held[RECENT].ndim == 2 ? held[RECENT].shape[0] : 0;
    core->edges = scaled && held[EDGES].ndim == 2 ? held[EDGES].shape[1] : 0;
    core->pairs = scaled && held[PAIRS].ndim == 2 ? held[PAIRS].shape[1] : 0;
    Py_ssize_t features = d * (1 + (core->option[MAGNITUDE_WEIGHT] > 0.0)) + core->pairs + d * core->edges;
    Py_ssize_t sizes[ARRAYS] = {
        k * n * n, k * n * n, k * n, k, !adaptive * k, adaptive * k * n, adaptive * k,
        adaptive * k, adaptive * k, adaptive * k, adaptive * k, adaptive * k, k * core->residuals,
        has_arms, scaled * d, scaled * d, scaled, core->recent * d, d * core->edges, 2 * core->pairs,
    };
    for (int i = 0; i < ARRAYS; i++)
        if (held[i].len != sizes[i] * (Py_ssize_t)sizeof(double))
            return 0;
    if (scaled && (core->recent < 1 || features + (core->option[INTERCEPT] > 0.0) != n))
        return 0;
    return n > 0 && k > 0 && core->option[REFINE_EVERY] >= 1.0 && (!adaptive || core->residuals > 0);
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *values;
    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "O!", &PyDict_Type, &values))
        return NULL;
    Core *core = (Core *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!core)
        return NULL;
    if (!fill(core, values)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "expected the arrays of one learner, got others");
    } else if (!(core->raw = malloc((core->inputs + 2 * core->dim + core->residuals) * sizeof(double)))) {
        PyErr_NoMemory();
    } else {
        core->row = core->raw + core->inputs;
        core->product = core->row + core->dim;
        core->sorted = core->product + core->dim;
        return (PyObject *)core;
    }
    Py_DECREF(core);
    return NULL;
}

static void dispose(Core *core)
{
    PyTypeObject *type = Py_TYPE((PyObject *)core);
    for (int i = 0; i < ARRAYS; i++)
        PyBuffer_Release(&core->held[i]);
    free(core->raw);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(core);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"scores", (PyCFunction)(void (*)(void))scores, METH_FASTCALL, NULL},
    {"learn", (PyCFunction)(void (*)(void))learn, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {{Py_tp_new, make}, {Py_tp_dealloc, dispose}, {Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec spec = {"torchonline.core._compiled.Core", sizeof(Core), 0, Py_TPFLAGS_DEFAULT, slots};

static int execute(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int failed = !type || PyModule_AddObjectRef(module, "Core", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyMethodDef functions[] = {
    {"best", best, METH_O, NULL}, {"sum_of_squares", sum_of_squares, METH_O, NULL}, {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "torchonline.core._compiled", NULL, 0, functions, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__compiled(void) { return PyModuleDef_Init(&definition); }
