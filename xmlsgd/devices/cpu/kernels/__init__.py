"""Loops over arrays, compiled by Numba: a module for each part of a step or of a prediction.

Numba takes arrays and numbers only, so kernels have long argument lists. An argument of these names means the same in
all of them:

    rows, indptr, indices, data    the rows of a batch, int64 (B,), in a CSR matrix, int64 (n + 1,), int32 and float32
    A, dA                          activations (B, H) of the layer below, and their gradient, a part per thread
    W, b                           weights, (F, H) of the input layer, (L, H) of others, and biases (L,), float32
    scales                         of weights in int8, one per row of W; `logits.ONE_SCALE` if W is float32
    Ws, Wt, bs, bt                 the optimizer's state of W and b, s and t; one row if it does not need it
    Z, z                           logits by label (labels, B), those of one label (B,); later their gradient
    keys                           label * 2^32 + batch row of each true label of the batch, ascending
    scale                          the weights of the rows of the batch, (B,), 0 for padding
    target, log_sum                of a normalized loss: 1 / labels of a row, and the log of its sum of exponentials
    loss                           the address of the loss (`loss_address`)
    update, hyper                  the address of the optimizer (`update_address`), and its numbers, (8,)
    bias_update, bias_hyper        the same for biases
    threshold, seed                of dropout, or of stochastic gradient sparsification, and of its random draws
    part, n_parts                  which part of the rows or labels a call handles, of how many
    n_threads, chunk, batch        how many threads share the loop; how many labels, or rows, it handles together
    forward, backward, packed, pads    operands of bfloat16 products and their scratch (`bf16`)
    labels, scores                 labels by row, int32 (n, k), -1 for none, and their scores, float32; of a result,
                                   best first and filled up with -1 and -inf

Kernels of candidates have more; a prefix says to which part of the model an argument belongs:

    weight, vote_weight            sample weights of the training rows, (n,), and weights of their votes, float32
    label_ptr, label_index         the labels of the training rows, a CSR matrix
    label_frequency                the number of training rows with each label, float32 (L,)
    feature_weights                by which features are multiplied for neighbors and co-occurrence, float32 (F,)
    postings_*                     the k-NN index: by feature, the training rows that have it (`knn.vote`)
    share_*                        co-occurrence: by feature, the labels that often occur with it (`cooccurrence`)
    table_*, linear_bias           the linear classifiers: by label, a hash table or a row of a dense matrix (`margins`)
    tree_*                         gradient-boosted trees (`trees.trees_of_row`)
    exclusion_*                    labels that exclude each other (`exclusion.exclude_in_row`)
    clean, items, item_values      scratch of a thread over all training rows and labels (`knn.scratch_shapes`)

Kernels that are called for each batch of training share a loop over `prange`, on Numba's threads. Others handle a part
of the work, and Python threads call them, as `prange` takes long to compile (docs/decisions/kernels.md).

Numba compiles a function once for each type of an argument. Literals are types of their own, and the index of `prange`
is unsigned. So functions that take long to compile are called with `np.int64`.

"Scratch" is memory that a kernel uses and whose content has no meaning for the caller. A step of the output layer
computes Z = W A^T + b, replaces Z by the gradient of the loss, and computes dA = Z^T W, dW = Z A and the update of W by
dW, chunk by chunk of labels. `reference.py` defines the results.
"""
