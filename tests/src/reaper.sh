# sh reaper.sh MARK: waits for the end of its input, then kills whoever has the mark in its environment, until nobody has.
read -r _
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    carriers=$(grep -lsF -e "$1" /proc/[0-9]*/environ)
    [ -n "$carriers" ] || exit 0
    for carrier in $carriers; do
        process=${carrier#/proc/}
        kill -KILL "${process%/environ}" 2>/dev/null
    done
    sleep 0.1
done
