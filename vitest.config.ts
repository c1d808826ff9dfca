import { defineConfig } from "vitest/config"

export default defineConfig({
  resolve: { conditions: ["fl-attach-source"] },
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/interop/**"],
    testTimeout: 30_000
  }
})
