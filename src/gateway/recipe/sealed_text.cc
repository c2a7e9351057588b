#include "gateway/recipe/sealed_text.h"

#include <array>
#include <fstream>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/core/check.h"

namespace hadal::recipe {
namespace {

// Version 1: "hs1." and base64 of nonce, ciphertext, tag.
constexpr std::string_view kPrefix = "hs1.";
constexpr size_t kKeyBytes = 32, kNonceBytes = 12, kTagBytes = 16;

using Context = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

Context make_context() {
  return {EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free};
}
const unsigned char* bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

bool is_sealed(std::string_view text) {
  return text.starts_with(kPrefix);
}

std::string seal_text(std::string_view key, std::string_view purpose, std::string_view text) {
  HADAL_CHECK(key.size() == kKeyBytes, "a sealing key has 32 bytes");
  std::vector<unsigned char> box(kNonceBytes + text.size() + kTagBytes);
  HADAL_CHECK(RAND_bytes(box.data(), kNonceBytes) == 1, "no random bytes");
  const Context context = make_context();
  int n = 0;
  bool ok =
      EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, bytes(key), box.data()) == 1;
  ok = ok && EVP_EncryptUpdate(context.get(), nullptr, &n, bytes(purpose),
                               static_cast<int>(purpose.size())) == 1;
  ok = ok && EVP_EncryptUpdate(context.get(), box.data() + kNonceBytes, &n, bytes(text),
                               static_cast<int>(text.size())) == 1;
  ok = ok && EVP_EncryptFinal_ex(context.get(), box.data() + kNonceBytes + n, &n) == 1;
  ok = ok && EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes,
                                 box.data() + kNonceBytes + text.size()) == 1;
  HADAL_CHECK(ok, "AES-256-GCM failed");
  std::string out(kPrefix);
  std::string base64(4 * ((box.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(base64.data()), box.data(),
                                   static_cast<int>(box.size()));
  base64.resize(static_cast<size_t>(size));
  return out + base64;
}

core::Result<std::string> open_sealed(std::string_view key, std::string_view purpose,
                                      std::string_view sealed) {
  const core::Error refused{core::Code::kInvalidRequest,
                            "the encrypted content was not made by this server, or was changed; "
                            "send it back exactly as it came, or leave it out"};
  if (key.size() != kKeyBytes || !is_sealed(sealed)) return refused;
  sealed.remove_prefix(kPrefix.size());
  if (sealed.empty() || sealed.size() % 4 != 0) return refused;
  std::vector<unsigned char> box(sealed.size() / 4 * 3);
  if (EVP_DecodeBlock(box.data(), bytes(sealed), static_cast<int>(sealed.size())) < 0) {
    return refused;
  }
  size_t n_box = box.size();
  if (sealed.ends_with("==")) {
    n_box -= 2;
  } else if (sealed.ends_with('=')) {
    n_box -= 1;
  }
  if (n_box < kNonceBytes + kTagBytes) return refused;
  const size_t n_text = n_box - kNonceBytes - kTagBytes;
  std::string text(n_text + 1, '\0');
  auto* out = reinterpret_cast<unsigned char*>(text.data());
  const Context context = make_context();
  int n = 0;
  bool ok =
      EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, bytes(key), box.data()) == 1;
  ok = ok && EVP_DecryptUpdate(context.get(), nullptr, &n, bytes(purpose),
                               static_cast<int>(purpose.size())) == 1;
  ok = ok && EVP_DecryptUpdate(context.get(), out, &n, box.data() + kNonceBytes,
                               static_cast<int>(n_text)) == 1;
  ok = ok && EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes,
                                 box.data() + kNonceBytes + n_text) == 1;
  ok = ok && EVP_DecryptFinal_ex(context.get(), out + n, &n) == 1;
  if (!ok) return refused;
  text.resize(n_text);
  return text;
}

std::string tenant_sealing_key(std::string_view key, std::string_view tenant) {
  HADAL_CHECK(key.size() == kKeyBytes, "a sealing key has 32 bytes");
  std::string label = "hadal tenant\n";
  label += tenant;
  std::string out(kKeyBytes, '\0');
  unsigned int size = 0;
  const bool ok =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes(label), label.size(),
           reinterpret_cast<unsigned char*>(out.data()), &size) != nullptr;
  HADAL_CHECK(ok && size == kKeyBytes, "HMAC-SHA256 failed");
  return out;
}

core::Result<std::string> read_sealing_key(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4096> buffer{};
  file.read(buffer.data(), buffer.size());
  const std::string_view content(buffer.data(), static_cast<size_t>(file.gcount()));
  if (content.empty()) {
    return core::Error{core::Code::kIo, fmt::format("{}: cannot be read, or is empty", path)};
  }
  if (content.size() == kKeyBytes) return std::string(content);
  std::string key;
  int high = -1;
  bool good = true;
  for (const char c : content) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    good = good && digit >= 0;
    if (high < 0) {
      high = digit;
    } else {
      key += static_cast<char>(high * 16 + digit);
      high = -1;
    }
  }
  if (good && high < 0 && key.size() == kKeyBytes) return key;
  return core::Error{core::Code::kInvalidRequest,
                     fmt::format("{}: a key is 32 bytes, or 64 hexadecimal digits (openssl rand "
                                 "-hex 32 makes one)",
                                 path)};
}

}  // namespace hadal::recipe
