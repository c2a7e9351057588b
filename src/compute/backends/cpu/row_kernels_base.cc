#include "compute/backends/cpu/row_kernels_body.inc"

const RowKernels kRowKernelsBase = kTable;

}  // namespace hadal::cpu
