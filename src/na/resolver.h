// Resolves host names; requests for one name at the same time share one query.
//
// The system's resolver blocks for seconds, so queries run on a few threads, which exist while
// queries wait. Host names that peers chose have a share of the threads and a short queue of their
// own, so that they never hold up the program's own queries. A failure is remembered for a while,
// so that repeated connects do not repeat the query. A success is not: the system does not return
// how long it is valid.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <weft/function.h>
#include <weft/status.h>
#include <weft/time.h>

#include "na/socket_name.h"

namespace weft::na {

class Resolver {
  public:
    struct Answer {
        std::vector<SocketName> names;  // With port 0, in the order to try. Empty: failed.
        std::string error;              // The reason of the failure.
        Code code = Code::unavailable;  // RESOURCE_EXHAUSTED: a limit of this process.
    };
    // One query. A query that all its holders drop before a thread takes it does not run.
    struct Query {
        Answer answer;
        std::atomic<bool> done{false};  // Publishes the answer.
    };
    // The source of a host name.
    enum class Origin : std::uint8_t { program, peer };

    static constexpr Duration failure_ttl_default = 1s;
    static constexpr unsigned threads_max = 8;
    static constexpr std::size_t names_max = 16;         // Of an answer.
    static constexpr std::size_t waiting_max = 1 << 16;  // As many as a runtime has peers.
    // Of these, for host names that peers chose.
    static constexpr unsigned peer_threads_max = 2;
    static constexpr std::size_t peer_waiting_max = 64;

    // `look_up(host)` may block; it runs on the resolver's threads, several at once, which may
    // outlive the resolver.
    explicit Resolver(Answer (*look_up)(const std::string& host),
                      Duration failure_ttl = failure_ttl_default);

    // The resolver of this process; queries the system.
    static Resolver& system();

    // Thread: any. The times of several callers may differ a little. A query that finds no thread,
    // or the queue full, completes at once with RESOURCE_EXHAUSTED.
    std::shared_ptr<const Query> resolve(const std::string& host, TimePoint now,
                                         Origin origin = Origin::program);
    // As resolve() for the program, but starts a new query in any case.
    std::shared_ptr<const Query> resolve_again(const std::string& host);
    // Queries that are pending, or failed and are remembered.
    std::size_t size(TimePoint now);
    // Thread: any.
    unsigned threads() const;

  private:
    struct State;

    const std::shared_ptr<State> state_;  // Shared with the threads.
};

}  // namespace weft::na
