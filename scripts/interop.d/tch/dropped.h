// Functions that tch 0.26 binds and torch 2.15 has dropped. Nothing here calls them.
#include <torch/torch.h>

namespace torch {
template <class... Arguments> Tensor cholesky(Arguments &&...) {
    TORCH_CHECK(false, "dropped");
}
template <class... Arguments> Tensor cholesky_out(Arguments &&...) {
    TORCH_CHECK(false, "dropped");
}
template <class... Arguments> std::tuple<Tensor, Tensor> qr(Arguments &&...) {
    TORCH_CHECK(false, "dropped");
}
template <class... Arguments> std::tuple<Tensor, Tensor> qr_out(Arguments &&...) {
    TORCH_CHECK(false, "dropped");
}
} // namespace torch
