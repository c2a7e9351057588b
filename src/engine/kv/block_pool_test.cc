#include "engine/kv/block_pool.h"

#include <array>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "engine/kv/block_hash.h"
#include "engine/kv/miss.h"
#include "engine/kv/snapshots.h"

namespace hadal::kv {
namespace {

std::vector<int32_t> numbers(size_t n, int32_t from = 0) {
  std::vector<int32_t> ids(n);
  std::iota(ids.begin(), ids.end(), from);
  return ids;
}

std::vector<BlockHash> chain_of(const std::vector<int32_t>& tokens, uint32_t block_tokens,
                                const ChainSalt& salt = {}, const std::vector<bool>& images = {}) {
  std::vector<BlockHash> chain;
  extend_chain(salt, block_tokens, tokens, images, chain);
  return chain;
}

TEST(BlockHash, NamesTheWholePrefixAndGrowsWithIt) {
  const auto whole = chain_of(numbers(20), 4);
  ASSERT_EQ(whole.size(), 5u);
  std::vector<BlockHash> grown;
  for (size_t n = 1; n <= 20; ++n) extend_chain({}, 4, numbers(n), {}, grown);
  EXPECT_EQ(grown, whole);
  auto other = numbers(20);
  other[5] = 99;
  const auto diverged = chain_of(other, 4);
  EXPECT_EQ(diverged[0], whole[0]);
  for (size_t b = 1; b < 5; ++b) EXPECT_NE(diverged[b], whole[b]);
}

TEST(BlockHash, TenantWeightsAndPicturesAreSalts) {
  const auto tokens = numbers(12);
  const auto plain = chain_of(tokens, 4);
  EXPECT_NE(chain_of(tokens, 4, {"", "tenant", ""})[0], plain[0]);
  EXPECT_NE(chain_of(tokens, 4, {"weights", "", ""})[0], plain[0]);
  EXPECT_EQ(chain_of(tokens, 4, {"", "", "picture"}), plain) << "no image row, no picture";
  std::vector<bool> images(12);
  images[6] = true;
  const auto one = chain_of(tokens, 4, {"", "", "one"}, images);
  const auto two = chain_of(tokens, 4, {"", "", "two"}, images);
  EXPECT_EQ(one[0], plain[0]) << "before the picture";
  EXPECT_NE(one[1], plain[1]);
  EXPECT_NE(one[1], two[1]);
  EXPECT_NE(one[2], two[2]) << "after it, by the chain";
}

class BlockPoolTest : public ::testing::Test {
 protected:
  // Fills, seals and holds the blocks of a chain.
  std::vector<BlockRef> take(const std::vector<BlockHash>& chain) {
    std::vector<BlockRef> refs;
    const PrefixCache::Match match = prefixes_.match(chain);
    NodeId parent = kNoNode;
    for (uint32_t b = 0; b < match.n_resident; ++b) {
      parent = prefixes_.find(chain[b]);
      refs.push_back(pool_.share(parent));
    }
    EXPECT_TRUE(pool_.allocate(static_cast<uint32_t>(chain.size()) - match.n_resident, refs));
    for (size_t b = match.n_resident; b < chain.size(); ++b)
      parent = pool_.seal(refs[b], chain[b], parent);
    return refs;
  }
  void done(const std::vector<BlockHash>& chain, std::vector<BlockRef>& refs) {
    prefixes_.touch(chain, {.now_s = ++now_,
                            .n_blocks = static_cast<uint32_t>(chain.size()),
                            .last_is_partial = false,
                            .n_output = 1,
                            .arrival = {}});
    while (!refs.empty()) refs.pop_back();
  }
  PrefixCache prefixes_{{8, Policy::kTurnHazard, std::nullopt}};
  BlockPool pool_{8, prefixes_};
  double now_ = 0;
};

TEST_F(BlockPoolTest, SharedBlockOutlivesItsFirstOwner) {
  const auto chain = chain_of(numbers(8), 4);
  auto first = take(chain);
  auto second = take(chain);
  EXPECT_EQ(first[1].id(), second[1].id());
  EXPECT_EQ(pool_.n_held(), 2u);
  done(chain, first);
  EXPECT_EQ(pool_.n_held(), 2u);
  EXPECT_EQ(pool_.owners(second[0].id()), 1u);
  done(chain, second);
  EXPECT_EQ(pool_.n_held(), 0u);
  EXPECT_EQ(pool_.n_cached(), 2u);
  pool_.check_integrity();
}

// What anybody else sent, and whether it is still here, must read like nothing at all.
TEST_F(BlockPoolTest, AMissSaysNothingOfOtherTenants) {
  MissMemory misses(8, 4);
  const auto tokens = numbers(8);
  const auto send = [&](const std::string& tenant) {
    const ChainSalt salt{"", tenant, ""};
    const auto chain = chain_of(tokens, 4, salt);
    auto refs = take(chain);
    for (uint32_t b = 0; b < 2; ++b) misses.on_seal(refs[b].id(), b, chain[b], tokens, salt);
    done(chain, refs);
  };
  const auto ask = [&](const std::string& tenant) {
    const ChainSalt salt{"", tenant, ""};
    const auto chain = chain_of(tokens, 4, salt);
    return misses.explain(numbers(9), chain, prefixes_.match(chain), salt, prefixes_);
  };
  const auto evict_all = [&] {
    std::vector<BlockRef> all;
    ASSERT_TRUE(pool_.allocate(8, all).has_value());
  };
  EXPECT_EQ(ask("blue").miss, types::CacheMiss::kCold);
  EXPECT_FALSE(ask("blue").foreign);
  send("red");
  EXPECT_EQ(ask("blue").miss, types::CacheMiss::kCold);
  EXPECT_TRUE(ask("blue").foreign) << "operators are told";
  evict_all();
  EXPECT_EQ(ask("blue").miss, types::CacheMiss::kCold) << "nor that another's was given up";
  EXPECT_FALSE(ask("blue").foreign);
  send("blue");
  evict_all();
  EXPECT_EQ(ask("blue").miss, types::CacheMiss::kEvicted);
  send("red");
  EXPECT_EQ(ask("blue").miss, types::CacheMiss::kEvicted) << "its own story, whoever came after";
}

TEST_F(BlockPoolTest, AllocationIsAllOrNothing) {
  auto held = take(chain_of(numbers(20), 4));
  std::vector<BlockRef> out;
  const auto refused = pool_.allocate(4, out);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, core::Code::kOverloaded);
  EXPECT_TRUE(out.empty());
  EXPECT_TRUE(pool_.allocate(3, out).has_value());
  pool_.check_integrity();
}

TEST_F(BlockPoolTest, CachedBlocksAreGivenUpFromTheDeepEnd) {
  const auto chain = chain_of(numbers(32), 4);
  auto refs = take(chain);
  done(chain, refs);
  std::vector<BlockRef> out;
  ASSERT_TRUE(pool_.allocate(3, out).has_value());
  const PrefixCache::Match match = prefixes_.match(chain);
  EXPECT_EQ(match.n_resident, 5u);
  EXPECT_EQ(match.n_known, 8u) << "what is evicted is remembered";
  pool_.check_integrity();
}

TEST_F(BlockPoolTest, SealingTheSamePrefixTwiceKeepsOneBlock) {
  const auto chain = chain_of(numbers(4), 4);
  std::vector<BlockRef> a, b;
  ASSERT_TRUE(pool_.allocate(1, a) && pool_.allocate(1, b));
  const NodeId first = pool_.seal(a[0], chain[0], kNoNode);
  EXPECT_EQ(pool_.seal(b[0], chain[0], kNoNode), first);
  EXPECT_EQ(a[0].id(), b[0].id());
  EXPECT_EQ(pool_.n_free(), 7u);
  pool_.check_integrity();
}

TEST_F(BlockPoolTest, FlushKeepsWhatIsHeld) {
  const auto kept = chain_of(numbers(8), 4), gone = chain_of(numbers(8, 100), 4);
  auto held = take(kept);
  auto released = take(gone);
  done(gone, released);
  pool_.drop_cached();
  EXPECT_EQ(prefixes_.match(kept).n_resident, 2u);
  EXPECT_EQ(prefixes_.match(gone).n_resident, 0u);
  EXPECT_EQ(pool_.n_free(), 6u);
  pool_.check_integrity();
}

TEST(PrefixCache, StaysWholeUnderRandomRequestsWithBothPolicies) {
  for (const Policy policy : {Policy::kLru, Policy::kTurnHazard}) {
    PrefixCache prefixes({48, policy, 100});
    BlockPool pool(48, prefixes);
    std::mt19937 generator(7);
    const auto random = [&](uint32_t n) { return static_cast<uint32_t>(generator() % n); };
    struct Live {
      std::vector<BlockHash> chain;
      std::vector<BlockRef> refs;
      Arrival arrival;
    };
    std::vector<Live> live;
    double now = 0;
    for (int i = 0; i < 20000; ++i) {
      now += random(5);
      if (live.size() < 5 && random(2) == 0) {
        // Conversations that share beginnings: token t of talk k depends on k's leading bits.
        const uint32_t talk = random(16), n = 1 + random(10);
        std::vector<int32_t> tokens;
        for (uint32_t t = 0; t < n; ++t)
          tokens.push_back(static_cast<int32_t>(talk >> (4 - t / 2 % 5)));
        Live next{chain_of(tokens, 1), {}, {}};
        next.arrival = prefixes.arrive(next.chain, now);
        const uint32_t hit = prefixes.match(next.chain).n_resident;
        NodeId parent = kNoNode;
        for (uint32_t b = 0; b < hit; ++b) {
          parent = prefixes.find(next.chain[b]);
          next.refs.push_back(pool.share(parent));
        }
        ASSERT_TRUE(pool.allocate(n - hit, next.refs).has_value());
        for (uint32_t b = hit; b < n; ++b) parent = pool.seal(next.refs[b], next.chain[b], parent);
        live.push_back(std::move(next));
      } else if (!live.empty()) {
        const size_t at = random(static_cast<uint32_t>(live.size()));
        Live ended = std::move(live[at]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
        prefixes.touch(ended.chain, {.now_s = now,
                                     .n_blocks = static_cast<uint32_t>(ended.chain.size()) + 1,
                                     .last_is_partial = false,
                                     .n_output = random(100),
                                     .arrival = ended.arrival});
        while (!ended.refs.empty()) ended.refs.pop_back();
      }
      if (i % 10 == 0) pool.check_integrity();
    }
    EXPECT_GT(prefixes.n_evicted(), 100u);
    live.clear();
    pool.drop_cached();
    EXPECT_EQ(pool.n_free(), 48u);
  }
}

TEST(Snapshots, TheLongestUsableStateIsFoundAndTheOldestGoes) {
  const auto chain = chain_of(numbers(16), 4);
  Snapshots snapshots(2);
  EXPECT_FALSE(snapshots.longest(chain, 4, 100).has_value());
  const auto a = snapshots.put(chain[0], 10);
  const auto b = snapshots.put(chain[2], 50);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(snapshots.longest(chain, 4, 60)->n_blocks, 3u);
  EXPECT_EQ(snapshots.longest(chain, 4, 20)->n_blocks, 1u) << "made with a deeper prompt";
  EXPECT_EQ(snapshots.longest(chain, 2, 60)->n_blocks, 1u);
  EXPECT_FALSE(snapshots.longest(chain, 4, 5).has_value());
  EXPECT_EQ(snapshots.put(chain[3], 0), b) << "the place of the one not used for longest";
  EXPECT_TRUE(snapshots.has(chain[0], 10));
  EXPECT_FALSE(snapshots.has(chain[2], 100));
}

}  // namespace
}  // namespace hadal::kv
