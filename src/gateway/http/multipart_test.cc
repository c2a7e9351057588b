#include "gateway/http/multipart.h"

#include <gtest/gtest.h>

namespace hadal::http {
namespace {

constexpr std::string_view kType = "multipart/form-data; boundary=xyz";

TEST(Multipart, FieldsAndFilesComeInOrder) {
  const std::string body =
      "--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
      "--xyz\r\nContent-Type: text/plain\r\ncontent-disposition: form-data; name=\"file\"; "
      "filename=\"a \\\"b\\\".jsonl\"\r\n\r\n{}\r\n--xy\r\n\r\n--xyz--\r\n";
  const auto parts = parse_multipart(kType, body);
  ASSERT_TRUE(parts.has_value()) << parts.error().message;
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ(parts->at(0).name, "purpose");
  EXPECT_EQ(parts->at(0).content, "batch");
  EXPECT_FALSE(parts->at(0).has_filename);
  EXPECT_EQ(parts->at(1).filename, "a \"b\".jsonl");
  EXPECT_EQ(parts->at(1).content, "{}\r\n--xy\r\n");
}

TEST(Multipart, BoundariesMayBeQuotedAndContentEmpty) {
  const auto parts = parse_multipart(
      "Multipart/Form-Data; charset=utf-8; boundary=\"a b\"",
      "preamble\r\n--a b\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n--a b--");
  ASSERT_TRUE(parts.has_value()) << parts.error().message;
  EXPECT_EQ(parts->at(0).name, "x");
  EXPECT_EQ(parts->at(0).content, "");
}

TEST(Multipart, BrokenFormsAreRefused) {
  const std::string good =
      "--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nvalue\r\n--xyz--\r\n";
  for (size_t cut = 0; cut + 4 < good.size(); ++cut)
    EXPECT_FALSE(parse_multipart(kType, good.substr(0, cut)).has_value()) << cut;
  EXPECT_FALSE(parse_multipart("application/json", good).has_value());
  EXPECT_FALSE(parse_multipart("multipart/form-data", good).has_value());
  EXPECT_FALSE(parse_multipart("multipart/form-data; boundary=", good).has_value());
  EXPECT_FALSE(parse_multipart(kType, "--xyz\r\nX: y\r\n\r\nvalue\r\n--xyz--").has_value());
  EXPECT_FALSE(parse_multipart(kType, "--xyz\r\nno colon\r\n\r\nvalue\r\n--xyz--").has_value());
  std::string many;
  for (size_t i = 0; i <= kMostParts; ++i)
    many += "--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nv\r\n";
  EXPECT_FALSE(parse_multipart(kType, many + "--xyz--").has_value());
}

}  // namespace
}  // namespace hadal::http
