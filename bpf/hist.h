/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The bucket rule of duration histograms, the same as HistogramBucket in
 * model/histogram.go: units of 128 ns, of which 0 to 7 have a bucket each, and
 * every power of two above is split into 8.
 */
#ifndef AUTOTUNE_HIST_H
#define AUTOTUNE_HIST_H

#define HIST_UNIT_SHIFT 7
#define HIST_SUB_BITS 3
#define HIST_BUCKETS 224
/* So many units and more are in the last bucket. */
#define HIST_UNITS (1ULL << (HIST_BUCKETS / (1 << HIST_SUB_BITS) + HIST_SUB_BITS - 1))

/* hist_above is 1 if v > limit and 0 otherwise, for values below 1 << 63. */
static inline __attribute__((always_inline)) __u32 hist_above(__u64 v, __u64 limit)
{
	return (limit - v) >> 63;
}

/*
 * hist_log2 returns the position of the highest bit set in v, 0 for 0, of values
 * below 1 << 32. It
 * halves the search range without branches: each would double the paths that
 * the verifier walks, and the count-leading-zeros builtin has no BPF lowering
 * in the compilers in use.
 */
static inline __attribute__((always_inline)) __u32 hist_log2(__u64 v)
{
	__u32 shift, result;

	result = hist_above(v, 0xffff) << 4;
	v >>= result;
	shift = hist_above(v, 0xff) << 3;
	v >>= shift;
	result |= shift;
	shift = hist_above(v, 0xf) << 2;
	v >>= shift;
	result |= shift;
	shift = hist_above(v, 0x3) << 1;
	v >>= shift;
	result |= shift;
	return result | (__u32)(v >> 1);
}

/* hist_bucket returns the bucket of a duration in nanoseconds. */
static inline __attribute__((always_inline)) __u32 hist_bucket(__s64 ns)
{
	__u64 units;
	__u32 exp;

	if (ns < 0)
		return 0;
	units = (__u64)ns >> HIST_UNIT_SHIFT;
	if (units < 1 << HIST_SUB_BITS)
		return units;
	if (units >= HIST_UNITS)
		return HIST_BUCKETS - 1;
	exp = hist_log2(units);
	return ((exp - HIST_SUB_BITS + 1) << HIST_SUB_BITS) +
	       (__u32)((units >> (exp - HIST_SUB_BITS)) & ((1 << HIST_SUB_BITS) - 1));
}

#endif
