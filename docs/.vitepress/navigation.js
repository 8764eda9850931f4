// The parts of the site, and the pages of each in the order of reading.
const page = (text, link) => ({ text, link })
const group = (text, ...items) => ({ text, items, collapsed: false })

const operate = group('Operate',
  page('Install', '/operate/install'),
  page('Sizing', '/operate/sizing'),
  page('Run a cluster', '/operate/cluster'),
  page('TLS', '/operate/tls'),
  page('Users', '/operate/users'),
  page('Back up and restore', '/operate/backup'),
  page('Upgrade and roll back', '/operate/upgrade'),
  page('Monitor', '/monitoring'),
  page('Alerts', '/runbook'),
  page('Troubleshoot', '/operate/troubleshoot'),
  page('History and memory', '/operate/history'),
  page('Databases', '/engines'),
  page('Managed databases', '/cloud'),
  page('TiDB', '/tidb'),
  page('Kubernetes', '/kubernetes'),
  page('Helm chart', '/operate/helm'),
  page('Console', '/console'),
  page('Security', '/operate/security'))

const start = group('Start',
  page('Home', '/'),
  page('What it is', '/overview'),
  page('Choose a deployment', '/start/choose'),
  page('One server and a file', '/start/embedded'),
  page('MySQL or MariaDB', '/start/mysql'),
  page('Three servers', '/start/cluster'),
  page('k3s', '/start/k3s'),
  page('kubeadm', '/start/kubeadm'),
  page('Move from etcd', '/etcd'),
  page('Move from kine', '/operate/kine'))

const concepts = group('Concepts',
  page('Revisions', '/concepts/revisions'),
  page('The table', '/concepts/table'),
  page('Fencing', '/concepts/fencing'),
  page('Failover', '/concepts/failover'),
  page('Watches', '/concepts/watches'),
  page('Leases', '/concepts/leases'),
  page('Consistency', '/concepts/consistency'))

const reference = group('Reference',
  page('Commands', '/reference/commands'),
  page('Settings', '/reference/settings'),
  page('Metrics', '/reference/metrics'),
  page('Errors', '/reference/errors'),
  page('HTTP paths', '/reference/http'),
  page('Limits', '/operate/security#what-bounds-a-client'),
  page('RPCs and options', '/compatibility'),
  page('Measurements', '/measurements'),
  page('Changes', '/changelog'))

const developers = group('Developers',
  page('Architecture', '/developers/architecture'),
  page('Contribute', '/developers/contributing'),
  page('Integration tests', '/developers/integration'),
  page('Model', '/developers/model'),
  page('Simulation', '/developers/simulation'),
  page('Performance', '/developers/performance'),
  page('Benchmarks', '/developers/benchmarks/'),
  page('Side by side', '/developers/benchmarks/results'),
  page('Scoreboard', '/developers/benchmarks/scoreboard'),
  page('A hundred control planes', '/developers/benchmarks/planes'),
  page('Three zones', '/developers/benchmarks/zones'),
  page('Interference', '/developers/benchmarks/interference'),
  page('Many nodes', '/developers/benchmarks/nodes'),
  page('By size of the data', '/developers/benchmarks/growth'),
  page('Releases', '/developers/releasing'))

const designs = group('Designs',
  page('Cluster', '/developers/design-cluster'),
  page('Replica', '/developers/design-replica'),
  page('Write pipeline', '/developers/design-write'),
  page('Reads', '/developers/design-read'),
  page('In-memory view', '/developers/design-keyspace'),
  page('Users and tokens', '/developers/design-guard'),
  page('Watches', '/developers/design-watch'),
  page('SQL', '/developers/design-sqlstore'))

export const nav = [page('Start', '/start/choose'), page('Operate', '/operate/install'), page('Concepts', '/concepts/revisions'), page('Reference', '/reference/settings'), page('Developers', '/developers/architecture')]
export const sidebar = { '/': [start, operate, concepts, reference], '/developers/': [developers, designs] }
