import { availableParallelism } from "node:os"
import { join } from "node:path"
import { defaultServerConditions } from "vite"
import { defineConfig } from "vitest/config"

// Tests that import the package by its name get its source, not what was built last.
const ssr = { resolve: { conditions: ["fl-attach-source", ...defaultServerConditions] } }

// Each process that a test starts would compile the same files again, for half of its start.
process.env.NODE_COMPILE_CACHE ??= join(import.meta.dirname, "node_modules/.cache/node")

export default defineConfig({
  test: {
    // Tests wait for processes, too: one worker, the default on two processors, would leave one of them idle.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    projects: [
      {
        ssr,
        test: { name: "unit", include: ["test/**/*.test.ts", "docs/examples/*.test.ts"], testTimeout: 30_000 }
      },
      {
        ssr,
        // The same tests, with more seeds and mutations: what takes minutes.
        test: {
          name: "long",
          include: [
            "test/faults/*.test.ts",
            "test/fobs/{Robustness,Npy,Npz,NpzFile,SafetensorsFile}.test.ts",
            "test/transport/Frame.test.ts",
            "test/cell/{Keyring,CertificateExchange}.test.ts"
          ],
          provide: { isLong: true },
          testTimeout: 1_200_000
        }
      },
      {
        ssr,
        // Python peers: each file drives processes and folders of its own, one at a time.
        test: {
          name: "interop",
          include: ["test/interop/**/*.interop.ts"],
          globalSetup: "test/interop/python.ts",
          fileParallelism: false,
          testTimeout: 120_000
        }
      },
      {
        ssr,
        // Every combination of peers, schemes and sizes: what takes half an hour.
        test: {
          name: "interop-full",
          include: ["test/interop/**/*.interop.ts"],
          globalSetup: "test/interop/python.ts",
          fileParallelism: false,
          provide: { isLong: true },
          testTimeout: 240_000
        }
      }
    ]
  }
})
