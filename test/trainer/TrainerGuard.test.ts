import { assert, describe, it } from "@effect/vitest"
import * as TrainerGuard from "../../src/trainer/TrainerGuard.ts"

const clear = new Map<string, unknown>()
const secured = new Map<string, unknown>([
  ["cn__secure", true],
  ["cn__encrypted", true]
])

const judge = (options: { readonly boundCj?: string; readonly secure?: boolean; readonly cpFqcn?: string }) => {
  const rule = TrainerGuard.rule({
    cpFqcn: options.cpFqcn ?? "site-1",
    secure: options.secure ?? false,
    boundCj: () => options.boundCj
  })
  return (origin: string, channel: string, topic: string, headers = clear, isReply = false) => {
    const verdict = rule({ origin, address: { channel, topic }, headers, isReply })
    return typeof verdict === "object" ? "refuse" : verdict
  }
}

const open = "client_api.session_open"
const ready = "client_api.task_ready"
const download = ["download_service__", "download_service__download"] as const

describe("TrainerGuard", () => {
  it("16.31 unbound: only SESSION_OPEN of a direct child of the client parent", () => {
    const of = judge({})
    assert.strictEqual(of("site-1.job-1", "client_api", open), "admit")
    for (const origin of ["site-2.job-1", "site-1", "site-1.job-1.sub", "server.job-1", "site-11.job-1", ""]) {
      assert.strictEqual(of(origin, "client_api", open), "refuse", origin)
    }
    assert.strictEqual(of("site-1.job-1", "client_api", ready), "refuse")
    assert.strictEqual(of("site-1.job-1", ...download), "refuse")
  })

  it("16.31 bound or pinned: all of that CJ and nothing of another", () => {
    const of = judge({ boundCj: "site-1.job-1" })
    for (const topic of [open, ready, "client_api.shutdown"]) {
      assert.strictEqual(of("site-1.job-1", "client_api", topic), "admit", topic)
      assert.strictEqual(of("site-1.job-2", "client_api", topic), "refuse", topic)
    }
    assert.strictEqual(of("site-1.job-1", ...download), "admit")
    assert.strictEqual(of("site-1.job-2", ...download), "refuse")
  })

  it("16.31 other channels, and replies in clear, are none of its business", () => {
    const of = judge({ boundCj: "site-1.job-1" })
    assert.strictEqual(of("anybody", "cellnet.channel", "bye"), "pass")
    assert.strictEqual(of("anybody", "client_api", "client_api.result_ready", clear, true), "pass")
  })

  it("16.31 secure: what is not protected is refused, whoever sends it", () => {
    const of = judge({ boundCj: "site-1.job-1", secure: true })
    const half = new Map<string, unknown>([["cn__secure", true]])
    for (const headers of [clear, half, new Map<string, unknown>([["cn__encrypted", true]])]) {
      assert.strictEqual(of("site-1.job-1", "client_api", ready, headers), "refuse")
      assert.strictEqual(of("site-1.job-1", ...download, headers), "refuse")
    }
    assert.strictEqual(of("site-1.job-1", "client_api", ready, secured), "admit")
    assert.strictEqual(of("site-1.job-2", "client_api", ready, secured), "refuse")
  })
})
