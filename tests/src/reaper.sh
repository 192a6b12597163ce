# sh reaper.sh MARK: reads names of folders until its input ends. Then it kills whoever has the mark in its environment,
# until nobody has, and removes those of the folders that are left, with what is mounted in them.
mark=$1
set --
while read -r folder; do set -- "$@" "$folder"; done
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    carriers=$(grep -lsF -e "$mark" /proc/[0-9]*/environ)
    [ -n "$carriers" ] || break
    for carrier in $carriers; do
        process=${carrier#/proc/}
        kill -KILL "${process%/environ}" 2>/dev/null
    done
    sleep 0.1
done
for folder; do
    case $folder in
        /*/cell-*-disk-* | /*/cell-benches-*) [ -d "$folder" ] || continue ;;
        *) continue ;;
    esac
    # Once a file is not mounted any more, its devices do not name it.
    devices=$(losetup -l -n -O NAME,BACK-FILE 2>/dev/null | awk -v under="$folder/" 'index($2, under) == 1 { print $1 }')
    # What was mounted last goes first.
    awk -v under="$folder/" 'index($5, under) == 1 { print $5 }' /proc/self/mountinfo | tac | while read -r mount; do
        umount -l "$mount"
    done
    for device in $devices; do losetup -d "$device"; done
    # What the kernel ends with a host may have written once more.
    rm -rf --one-file-system "$folder" || { sleep 1; rm -rf --one-file-system "$folder"; }
done
