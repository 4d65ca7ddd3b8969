// Records a run from TypeScript, with nothing but fetch: docs/reference/protocol.md, section "Over HTTP".
//
// An agent chooses three tools at once. Each call is recorded before its tool runs and after; one of
// them asks another agent, whose plan is the call's sub-plan.
//
//     TRACER_URL=http://127.0.0.1:8420 node record.js

declare const process: { env: Record<string, string | undefined> };

const SERVER = process.env.TRACER_URL ?? "http://127.0.0.1:8420";

type Status = "succeeded" | "failed" | "cancelled";
type Place = { rootPlanId: string; planId: string };
type Ids = Record<string, string>;

/** A UUID of version 7: 48 bits of time, then random ones. */
function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  let time = Date.now();
  for (let place = 5; place >= 0; place--) {
    bytes[place] = time % 256;
    time = Math.floor(time / 256);
  }
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** Record events, and return when they are committed. Sending the same again is safe. */
async function record(...events: object[]): Promise<void> {
  const at = new Date().toISOString();
  const body = JSON.stringify({ events: events.map((event) => ({ at, ...event })) });
  for (let attempt = 1; ; attempt++) {
    try {
      const answer = await fetch(`${SERVER}/api/events`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body,
      });
      if (answer.ok) {
        const { refused } = (await answer.json()) as { refused: object[] };
        if (refused.length > 0) console.error("refused", refused);
        return;
      }
      if (answer.status !== 503) throw new Error(`status ${answer.status}`);
    } catch (error) {
      // Recording never changes what the agent does: say it, and go on.
      if (attempt === 5) return console.error("not recorded", error);
    }
    await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** attempt));
  }
}

type Call = { name: string; arguments: object; providerCallId: string };
type Turn = { thought: string; calls: Call[] };

/** What the models answer: a script. */
const SCRIPT: Record<string, Turn[]> = {
  "How are p-1 and p-2?": [
    {
      thought: "I measure both, and ask.",
      calls: [
        { name: "measure", arguments: { patient: "p-1" }, providerCallId: "call_0" },
        { name: "measure", arguments: { patient: "p-9" }, providerCallId: "call_1" },
        { name: "ask_doctor", arguments: { question: "Is 151/99 too high?" }, providerCallId: "" },
      ],
    },
    { thought: "p-1 is well.", calls: [] },
  ],
  "Is 151/99 too high?": [{ thought: "Yes.", calls: [] }],
};

async function runTool(call: Call, place: Place, toolCallId: string): Promise<string> {
  const { patient, question } = call.arguments as { patient?: string; question?: string };
  if (question !== undefined) return runAgent("doctor", question, { ...place, toolCallId });
  if (patient === "p-9") throw new RangeError("There is no such patient.");
  return "121/79";
}

/** Run an agent as a root plan, or as the sub-plan of the tool call that opened it. */
async function runAgent(
  agentName: string,
  request: string,
  opener?: Place & { toolCallId: string },
): Promise<string> {
  const planId = newId();
  const place: Place = { rootPlanId: opener?.rootPlanId ?? planId, planId };
  const stepId = newId();
  const above = opener && { parentPlanId: opener.planId, toolCallId: opener.toolCallId, depth: 1 };
  await record(
    { type: "plan_started", ...place, ...above, title: request, userRequest: request, agentName,
      steps: [{ stepId, agentName, request }] },
    { type: "step_started", ...place, stepId },
  );
  let result = "";
  for (const [position, turn] of SCRIPT[request]!.entries()) {
    const inRound: Ids = { ...place, stepId, thinkActId: newId() };
    await record({ type: "thought_started", ...inRound, position, requestedModel: "gpt-5-mini",
      messages: [{ role: "user", content: request }] });
    // Here the model is asked. Its calls get ids of ours, and are recorded before any of them runs.
    const calls = turn.calls.map((call) => ({ ...call, toolCallId: newId() }));
    await record({ type: "thought_recorded", ...inRound, status: "succeeded", thought: turn.thought,
      model: "gpt-5-mini", inputTokens: 100, outputTokens: 10,
      toolCalls: calls.map((call) => ({ toolCallId: call.toolCallId, name: call.name,
        arguments: JSON.stringify(call.arguments), providerCallId: call.providerCallId })) });
    await Promise.all(
      calls.map(async (call) => {
        const ending: { status: Status; result?: string; reason?: string; error?: object } =
          await runTool(call, place, call.toolCallId).then(
            (result) => ({ status: "succeeded", result }),
            (error: Error) => ({ status: "failed", reason: "tool_error",
              error: { type: error.name, message: error.message } }),
          );
        const toolCallId = call.toolCallId;
        await record({ type: "tool_call_finished", ...inRound, toolCallId, ...ending });
      }),
    );
    result = turn.thought;
  }
  await record(
    { type: "step_finished", ...place, stepId, status: "succeeded", result },
    { type: "plan_finished", ...place, status: "succeeded", summary: result },
  );
  if (!opener) console.log(planId);
  return result;
}

void runAgent("nurse", "How are p-1 and p-2?");

export {};
