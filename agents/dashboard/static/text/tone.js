// The colour of a word of status. It never stands alone: the word is always there, too.

const GOOD =
  /^(Running|Ready|Active|Bound|Complete|Completed|Succeeded|True|Available|Approved,Issued|Normal|settled|ok)$/;
const BAD = /(Error|Fail|BackOff|Evicted|OOMKilled|NotReady|Unknown|Lost|Invalid|Warning|Denied)/;
const BUSY =
  /^(Pending|ContainerCreating|PodInitializing|Terminating|Released|Progressing|Init:.*|.*SchedulingDisabled)$/;

/** Return the class of a text: "good", "bad", "busy" or "". */
export function tone(text) {
  if (GOOD.test(text)) return "good";
  if (BAD.test(text)) return "bad";
  return BUSY.test(text) ? "busy" : "";
}
