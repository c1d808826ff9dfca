import { defineConfig } from "vitest/config"

const resolve = { conditions: ["fl-attach-source"] }

export default defineConfig({
  test: {
    projects: [
      {
        resolve,
        test: { name: "unit", include: ["test/**/*.test.ts", "docs/examples/*.test.ts"], testTimeout: 30_000 }
      },
      {
        resolve,
        // Python peers: each file drives processes and folders of its own, one at a time.
        test: {
          name: "interop",
          include: ["test/interop/**/*.interop.ts"],
          globalSetup: "test/interop/python.ts",
          fileParallelism: false,
          testTimeout: 120_000
        }
      }
    ]
  }
})
