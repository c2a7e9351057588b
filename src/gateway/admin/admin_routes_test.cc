#include "gateway/admin/admin_routes.h"

#include <gtest/gtest.h>

namespace hadal::admin {
namespace {

bool allowed(std::vector<http::Header> headers, bool loopback = true,
             const std::string& token = {}) {
  http::Request request;
  request.peer_is_loopback = loopback;
  request.headers = std::move(headers);
  return admin_allowed(request, token);
}

TEST(AdminAllowed, WithoutATokenOnlyProgramsOfThisMachineForThemselves) {
  for (const std::string host :
       {"127.0.0.1:8000", "localhost", "localhost:80", "[::1]:8000", "127.1.2.3"}) {
    EXPECT_TRUE(allowed({{"host", host}})) << host;
    EXPECT_FALSE(allowed({{"host", host}}, false)) << host;
    EXPECT_TRUE(allowed({{"host", host}, {"origin", "http://" + host}})) << host;
    EXPECT_FALSE(allowed({{"host", host}, {"x-forwarded-for", "9.9.9.9"}})) << host;
    EXPECT_FALSE(allowed({{"host", host}, {"forwarded", "for=9.9.9.9"}})) << host;
    for (const std::string& origin :
         {std::string("http://evil.example"), std::string("null"),
          std::string("http://127.0.0.1:9"), "http://" + host + ".evil.example"})
      EXPECT_FALSE(allowed({{"host", host}, {"origin", origin}})) << host << origin;
  }
  EXPECT_TRUE(allowed({}));  // HTTP/1.0
  // Names of others that may point here.
  for (const std::string host :
       {"evil.example:8000", "127.evil.example", "[::2]:8000", "localhost.evil.example", "x"}) {
    EXPECT_FALSE(allowed({{"host", host}})) << host;
    EXPECT_FALSE(allowed({{"host", host}, {"origin", "http://" + host}})) << host;
  }
}

TEST(AdminAllowed, ATokenIsNeededWhereThereIsOneAndSuffices) {
  const std::string token = "0123456789abcdef";
  EXPECT_FALSE(allowed({{"host", "127.0.0.1"}}, true, token));
  EXPECT_FALSE(allowed({{"authorization", "Bearer 0123456789abcdee"}}, true, token));
  EXPECT_TRUE(allowed({{"authorization", "Bearer " + token}, {"x-forwarded-for", "9.9.9.9"}}, false,
                      token));
}

}  // namespace
}  // namespace hadal::admin
