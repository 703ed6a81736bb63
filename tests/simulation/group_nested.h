// Handlers that begin collectives of their own, for calls that end early.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/trace_hash.h"
#include "simulation/group_stage.h"

namespace weft::scenarios {

class GroupNested {
  public:
    // Before the stage's hosts start.
    explicit GroupNested(GroupStage& stage);
    ~GroupNested();

    void plan();
    bool is_settled() const;
    // At the end of the run.
    void close();
    std::uint64_t hash() const { return trace_.value(); }

  private:
    struct Outer;
    struct Inner;
    using Life = std::pair<std::uint32_t, std::uint32_t>;  // A rank, and one life of it.

    void begin(const std::string& origin);
    void call_one(Outer& outer, std::uint32_t rank);
    void call_group(Outer& outer);
    void end_later(Outer& outer, std::function<void()> cancel);
    void complete(Outer& outer);
    void run_outer(const std::shared_ptr<Call>& call, Life at);
    void begin_inner(const std::shared_ptr<Call>& call, Inner& inner);
    void on_inner_done(Inner& inner, const std::shared_ptr<Call>& call, const GroupOutcome& all);
    void run_inner(const std::shared_ptr<Call>& call, Life at);
    void validate_cancelled(const Inner& inner) const;
    bool is_alive(Life at) const { return stage_.is_alive(stage_.name_of(at.first), at.second); }
    static std::string describe(const Inner& inner);

    GroupStage& stage_;
    std::vector<std::unique_ptr<Outer>> outers_;
    std::vector<std::unique_ptr<Inner>> inners_;
    base::TraceHash trace_;
};

}  // namespace weft::scenarios
