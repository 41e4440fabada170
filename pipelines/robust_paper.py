"""Values of paper 2: table 1, and tables 3 and 4 without USPS, which is not among the data."""

# Accuracy in percent, support vectors, seconds (2011), PRBEP in percent, AUC, g-means in percent, millions of kernel values.
FIGURES = ("accuracy", "support_vectors", "seconds", "break_even", "auc", "g_means", "kernel_evaluations")
PAPER: dict[tuple[str, str], tuple[float | None, ...]] = {
    ("adult", "full"): (84.87, 11831, 1186, 67.55, 0.897, 73.13, 709.0),
    ("adult", "g"): (84.81, 11266, 479, 67.18, 0.893, 72.87, 233.0),
    ("adult", "nc"): (85.01, 4609, 129, 67.85, 0.901, 75.03, 116.9),
    ("adult", "i"): (84.82, 5776, 92, 67.71, 0.899, 73.72, 105.9),
    ("adult", "lasvm"): (84.76, 11296, 376, 67.50, 0.896, 73.35, 566),
    ("adult", "svc"): (84.91, 11420, 318, None, None, None, None),
    ("mnist8", "full"): (99.25, 3412, 4757.4, 95.98, 0.998, 97.29, 2269.7),
    ("mnist8", "g"): (99.27, 3157, 547.1, 96.18, 0.998, 97.42, 182.6),
    ("mnist8", "nc"): (99.15, 2653, 526.0, 95.64, 0.998, 96.86, 153.5),
    ("mnist8", "i"): (99.18, 2722, 491.4, 95.80, 0.998, 97.06, 121.2),
    ("mnist8", "lasvm"): (99.07, 2889, 640, 95.72, 0.998, 97.33, 221),
    ("mnist8", "svc"): (99.36, 3146, 1372.2, None, None, None, None),
    ("banana", "full"): (90.03, 947, 1, 88.54, 0.965, 89.51, 8.51),
    ("banana", "g"): (89.81, 941, 0.4, 88.46, 0.966, 89.30, 3.8),
    ("banana", "nc"): (89.97, 551, 0.4, 88.61, 0.965, 89.47, 3.1),
    ("banana", "i"): (89.84, 669, 0.3, 88.54, 0.964, 89.38, 2.0),
    ("banana", "lasvm"): (89.80, 880, 0.5, 88.59, 0.965, 89.28, 4.1),
    ("banana", "svc"): (90.07, 915, 0.6, None, None, None, None),
    ("reuters", "full"): (97.19, 1122, 14.4, 76.48, 0.987, 81.00, 33.2),
    ("reuters", "g"): (97.19, 1120, 5.3, 76.42, 0.987, 81.17, 9.9),
    ("reuters", "nc"): (97.16, 1086, 4.7, 76.42, 0.987, 81.19, 9.9),
    ("reuters", "i"): (97.16, 1093, 3.6, 76.20, 0.987, 81.06, 8),
    ("reuters", "lasvm"): (97.13, 1140, 7, 76.31, 0.987, 81.04, 14.2),
    ("reuters", "svc"): (97.19, 1090, 7.2, None, None, None, None),
}
# Table 1 (Adult): support vectors and others in the expansion; met left (z < s) and right (z > 1) of the ramp; of those removed.
ANALYSIS = {
    "full": (11831, 20731, None, None, None, None),
    "g": (11265, 0, 1340, 20252, 1, 19562),
    "nc": (4609, 0, 1920, 26032, 1916, 23823),
}
