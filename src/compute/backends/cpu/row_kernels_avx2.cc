#include "compute/backends/cpu/row_kernels_body.inc"

const RowKernels kRowKernelsAvx2 = kTable;

}  // namespace hadal::cpu
