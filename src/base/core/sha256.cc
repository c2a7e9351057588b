#include "base/core/sha256.h"

#include <openssl/evp.h>

#include "base/core/check.h"

namespace hadal::core {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  HADAL_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1, "no SHA-256");
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(state_->context);
}

void Sha256::add(const void* data, size_t size) {
  HADAL_CHECK(EVP_DigestUpdate(state_->context, data, size) == 1, "SHA-256");
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  unsigned size = 0;
  HADAL_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1 &&
                  EVP_DigestInit_ex(state_->context, nullptr, nullptr) == 1,
              "SHA-256");
  return digest;
}

}  // namespace hadal::core
