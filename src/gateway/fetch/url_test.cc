#include "gateway/fetch/url.h"

#include <gtest/gtest.h>

namespace hadal::fetch {
namespace {

TEST(Url, PartsOfAGoodOne) {
  const auto url = parse_url("HTTPS://Example.ORG:8443/a/b?x=1#frag");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->text(), "https://example.org:8443/a/b?x=1");
  EXPECT_EQ(parse_url("http://example.org")->text(), "http://example.org:80/");
  EXPECT_EQ(parse_url("http://example.org?q")->target, "/?q");
  EXPECT_EQ(parse_url("http://[2001:DB8::1]:81/")->authority(), "[2001:db8::1]:81");
}

TEST(Url, WrongOnesAreRefused) {
  for (const char* text :
       {"", "example.org", "ftp://example.org/", "file:///etc/passwd", "gopher://x/", "http://",
        "http:///x", "http://user@example.org/", "http://user:p@example.org/", "http://a b/",
        "http://example.org/a\r\nHost: x", "http://example.org:0/", "http://example.org:99999/",
        "http://example.org:8x/", "http://[::1/", "http://[x]/", "http://ex\xC3\xA4mple.org/",
        "http://a%2eb/", "http://good.org\\@evil.org/"}) {
    EXPECT_FALSE(parse_url(text)) << text;
  }
  EXPECT_FALSE(parse_url("http://example.org/" + std::string(kMaxUrlBytes, 'a')));
}

TEST(Url, RedirectsStayWithTheirHostUnlessTheySayOtherwise) {
  const Url from = *parse_url("https://example.org/a/b?x");
  EXPECT_EQ(resolve_redirect(from, "/c")->text(), "https://example.org:443/c");
  EXPECT_EQ(resolve_redirect(from, "c?y")->text(), "https://example.org:443/a/c?y");
  EXPECT_EQ(resolve_redirect(from, "//other.org/")->text(), "https://other.org:443/");
  EXPECT_EQ(resolve_redirect(from, "http://other.org/")->text(), "http://other.org:80/");
  EXPECT_EQ(resolve_redirect(from, "/?u=http://x/")->text(),
            "https://example.org:443/?u=http://x/");
  EXPECT_FALSE(resolve_redirect(from, "file:///etc/passwd"));
}

}  // namespace
}  // namespace hadal::fetch
