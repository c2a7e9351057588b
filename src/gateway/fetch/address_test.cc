#include "gateway/fetch/address.h"

#include <gtest/gtest.h>

#include "gateway/fetch/web_client.h"

namespace hadal::fetch {
namespace {

TEST(Address, PrivateAndSpecialNetworksAreNotPublic) {
  for (const char* text :
       {"0.0.0.0",        "0.1.2.3",         "10.0.0.1",        "100.64.0.1", "100.127.255.255",
        "127.0.0.1",      "127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255",
        "192.0.0.8",      "192.0.2.1",       "192.168.1.1",     "198.18.0.1", "198.19.255.255",
        "198.51.100.7",   "203.0.113.9",     "224.0.0.1",       "239.1.2.3",  "240.0.0.1",
        "255.255.255.255"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_FALSE(is_public(*address)) << text;
  }
}

TEST(Address, FormsOfIpv6ThatReachPrivateNetworksAreNotPublic) {
  for (const char* text : {"::",
                           "::1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.0.0.1",
                           "::ffff:a9fe:a9fe",
                           "::127.0.0.1",
                           "::10.0.0.1",
                           "64:ff9b::127.0.0.1",
                           "64:ff9b::a9fe:a9fe",
                           "64:ff9b:1::1",
                           "100::1",
                           "2001::1",
                           "2001:db8::1",
                           "2001:10::1",
                           "2002:7f00:1::",
                           "2002:a9fe:a9fe::1",
                           "2002:a00:1::",
                           "fc00::1",
                           "fd00:ec2::254",
                           "fe80::1",
                           "fec0::1",
                           "ff02::1",
                           "3fff::1",
                           "4000::1"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_FALSE(is_public(*address)) << text;
  }
}

TEST(Address, TheRestIsPublic) {
  for (const char* text :
       {"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1",
        "192.0.1.1", "192.167.0.1", "198.17.0.1", "223.255.255.1", "2606:4700::1111",
        "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_TRUE(is_public(*address)) << text;
  }
}

TEST(Address, WhatIsNoAddressIsNone) {
  for (const char* text : {"", "localhost", "1.2.3", "0x7f000001", "2130706433", "127.1",
                           "1.2.3.4:80", "[::1]", "::1%lo", "1.2.3.4 "}) {
    EXPECT_FALSE(parse_address(text)) << text;
  }
}

TEST(Address, OnePrivateAddressOfANameIsEnoughToRefuseIt) {
  const Url url = *parse_url("https://example.org/");
  const std::vector<Address> both = {*parse_address("8.8.8.8"), *parse_address("10.0.0.1")};
  EXPECT_FALSE(allowed_addresses(both, url, {}));
  EXPECT_TRUE(allowed_addresses({both[0]}, url, {}));
  EXPECT_TRUE(allowed_addresses(both, url, {"example.org:443"}));
  EXPECT_FALSE(allowed_addresses(both, url, {"example.org:80", "other.org:443"}));
  EXPECT_FALSE(allowed_addresses({}, url, {"example.org:443"}));
}

}  // namespace
}  // namespace hadal::fetch
