"""The benchmark of clusterings: ours beside doing nothing and beside deep clustering, judged alike."""
