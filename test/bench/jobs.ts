/** The job of a benchmark's service, wherever it meets its trainers. */
import { join } from "node:path"
import { NodeAttach } from "fl-attach"

const names = { site: "site-1", job: "job-1" }

/** `place` is a shared folder or a client parent's URL; with a folder of certificates, messages are protected. */
export const layerJob = (place: string, certs: string | undefined) => {
  if (!place.includes("://")) return NodeAttach.layer({ ...names, sharedDir: place })
  const secured = certs === undefined ? {} : { secure: true, resources: { ca_cert: join(certs, "rootCA.pem") } }
  return NodeAttach.layerClientParent({ ...names, parentUrl: place, ...secured })
}
