#!/usr/bin/env node
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { runMain, teardown } from "./internal/runMain.ts"
import { Screen } from "./internal/Screen.ts"
import { run } from "./Main.ts"

run(process.argv.slice(2)).pipe(
  Effect.provide(Layer.merge(NodeServices.layer, Screen.layerNode)),
  runMain({ teardown, disableErrorReporting: true })
)
