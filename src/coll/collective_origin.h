// Collectives at the rank that begins them: begin, choice of a tree, completion, later view.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "coll/choose_tree.h"
#include "coll/collective_host.h"
#include "coll/origin_driver.h"

namespace weft::coll {

class CollectiveOrigin final : private OriginDriver::Owner {
  public:
    explicit CollectiveOrigin(CollectiveHost& host);

    // `done` runs in a later turn, in the scope of this call unless the options detach it.
    void start(CollectiveRequest request);
    // False: there is none of that number.
    bool cancel(CollectiveId id);
    // Begun here and completed by their policy, while other ranks may not have them yet.
    std::size_t delivering() const;
    void shutdown();

  private:
    // Limit of the collectives of one origin since the first unacknowledged one, which members have
    // to keep. If one lasts longer, the next ones get a new origin.
    static constexpr std::uint64_t unacknowledged_max = 256;

    void start_in_turn(CollectiveRequest request);
    std::shared_ptr<OriginDriver> make(CollectiveRequest request, Choice choice);
    void restart(OriginDriver& collective);
    void forget(const OriginDriver& collective);
    void refresh(std::shared_ptr<OriginDriver> collective, std::uint32_t position) override;
    void on_done(OriginDriver& collective) override;
    // Fetches the view of a member, and installs it if it is later; then calls `done`, at once or
    // later. Concurrent callers wait for the same reply.
    static void fetch_view(const std::shared_ptr<GroupState>& group, const Member& from,
                           Function<void()> done);
    // The key, and its distance from the origin's first unacknowledged collective.
    std::pair<CollectiveKey, std::uint16_t> next_key();

    CollectiveHost& host_;
    std::uint64_t origin_;            // A random number.
    std::uint64_t origin_first_ = 0;  // The first sequence number of `origin_`.
    std::uint64_t next_sequence_ = 0;
    std::map<std::uint64_t, std::shared_ptr<OriginDriver>> begun_;  // By sequence; incomplete.
};

}  // namespace weft::coll
