"""Loops over arrays, compiled by Numba: a module for each part of a step or of a prediction.

Numba takes arrays and numbers only, so kernels have long argument lists. A name means the same in all of them:

    rows, indptr, indices, data    the rows of a batch, int64 (B,), in a CSR matrix, int64 (n + 1,), int32 and float32
    A, dA                          activations (B, H) of the layer below, and their gradient, a part a thread
    W, b                           weights, (F, H) of the input layer, (L, H) of others, and biases (L,), float32
    scales                         of weights in int8, one a row, (L,); `logits.ONE_SCALE` where W is float32
    Ws, Wt, bs, bt                 the optimizer's state of W and b, s and t; of one row where it has none
    Z, z                           logits label by label (labels, B), a label's (B,); later their gradient
    keys                           label * 2^32 + batch row of each true label of the batch, ascending
    scale                          what the rows of the batch weigh, (B,), 0 for padding
    target, log_sum                of a normalized loss: 1 / labels of a row, and the log of its sum of exponentials
    loss                           the address of the loss (`parts.loss_address`)
    update, hyper                  the address of the optimizer (`parts.update_address`), and its numbers, (8,)
    bias_update, bias_hyper        the same for biases
    threshold, seed                of dropout or of stochastic gradient sparsification, and what its draws depend on
    n_threads, chunk, batch        how many threads share the loop; labels, rows that are worked on together
    forward, backward, packed, pads    operands of bfloat16 products and their scratch (`bf16`)
    labels, scores                 an answer: int32 and float32 (n, k), best first, filled up with -1 and -inf

A step of the output layer is Z = W A^T + b, the gradient of the loss by Z in place, dA = Z^T W, dW = Z A and the update
of W by dW, chunk by chunk of labels. `reference.py` defines what comes out.
"""
